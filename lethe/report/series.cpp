#include "lethe/report/series.h"

#include <algorithm>
#include <array>
#include <span>

namespace lethe::report {
namespace {

enum class Source { Steps, Evals };

struct LineSpec {
  Source source;
  const char* field;
  const char* label;
  Keep keep = Keep::Mean;
};

struct ChartSpec {
  const char* title;
  const char* unit;  // how page.js writes a value: "", "bytes"
  bool smooth;       // a running mean over the pale line of each step
  bool from_zero;    // the axis begins at 0
  const char* caption;
  std::span<const LineSpec> lines;
  const char* reference = nullptr;  // field of the start event that is drawn as a level line
};

// clang-format off
constexpr std::array kLoss{LineSpec{Source::Steps, "loss", "training"},
                           LineSpec{Source::Evals, "valid_loss", "validation"}};
constexpr std::array kLossTerms{LineSpec{Source::Steps, "loss_mtp", "next-token prediction (MTP)"},
                                LineSpec{Source::Steps, "loss_kl", "indexer KL"},
                                LineSpec{Source::Steps, "loss_balance", "expert balance"}};
constexpr std::array kGradNorm{LineSpec{Source::Steps, "grad_norm", "gradient norm"}};
constexpr std::array kBytes{LineSpec{Source::Steps, "peak_bytes", "peak", Keep::Largest},
                            LineSpec{Source::Steps, "live_bytes", "live at the step's end"}};
constexpr std::array kRecompute{LineSpec{Source::Steps, "recompute.released", "let go of"},
                                LineSpec{Source::Steps, "recompute.retained", "held by somebody else"}};
constexpr std::array kSwap{LineSpec{Source::Steps, "swap.bytes_out", "swapped out"},
                           LineSpec{Source::Steps, "swap.host_bytes_peak", "most of the host tier"}};
constexpr std::array kRate{LineSpec{Source::Steps, "lr", "learning rate"}};
constexpr std::array kSpeed{LineSpec{Source::Steps, "tokens_per_second", "tokens per second"}};

constexpr std::array kCharts{
    ChartSpec{"Loss", "", true, false, "Nats per token; the strong line is the running mean of the pale one.",
              kLoss, "bigram_entropy"},
    ChartSpec{"Gradient norm", "", true, true, "L2 norm over all parameters, before clipping.", kGradNorm},
    ChartSpec{"Bytes", "bytes", false, true, "Tensor storage, counted exactly by Lethe's own allocator.", kBytes},
    ChartSpec{"Recompute", "bytes", false, true,
              "Saved bytes of recomputed parts at the ends of the forwards of a step.", kRecompute},
    ChartSpec{"Swap", "bytes", false, true,
              "Inputs of layers that waited for backward in the host tier.", kSwap},
    ChartSpec{"Loss terms", "", true, true, "The terms added to the main loss, before their weights.", kLossTerms},
    ChartSpec{"Learning rate", "", false, true, "Warm-up, then the schedule of the run.", kRate},
    ChartSpec{"Speed", "", true, true, "Training tokens per second of each step.", kSpeed},
};

// clang-format on

nlohmann::ordered_json line_json(const char* label, const std::vector<Point>& points) {
  nlohmann::ordered_json pairs = nlohmann::ordered_json::array();
  for (const Point& point : points) pairs.push_back({{"x", point.step}, {"y", point.value}});
  return {{"label", label}, {"points", std::move(pairs)}};
}

/// The field "a.b" is the field b of the object a; nullptr where there is none.
const RunRecord::Object* find_field(const RunRecord::Object& entry, std::string_view field) {
  const size_t dot = field.find('.');
  const auto found = entry.find(field.substr(0, dot));
  if (found == entry.end()) return nullptr;
  if (dot == std::string_view::npos) return &*found;
  return found->is_object() ? find_field(*found, field.substr(dot + 1)) : nullptr;
}

/// The two ends of a level line, over all steps of the run.
std::vector<Point> level(const RunRecord& record, double value) {
  const std::vector<Point> loss = series(record.steps, "loss");
  if (loss.empty()) return {};
  return {{loss.front().step, value}, {loss.back().step, value}};
}

}  // namespace

std::vector<Point> series(const std::vector<RunRecord::Object>& entries, std::string_view field) {
  std::vector<Point> points;
  for (const RunRecord::Object& entry : entries) {
    const RunRecord::Object* const value = find_field(entry, field);
    if (value == nullptr || !value->is_number()) continue;
    points.push_back({entry["step"].get<double>(), value->get<double>()});
  }
  return points;
}

std::vector<Point> thin(const std::vector<Point>& points, size_t limit, Keep keep) {
  if (points.size() <= limit) return points;
  const size_t width = (points.size() + limit - 1) / limit;
  std::vector<Point> out;
  for (size_t begin = 0; begin < points.size(); begin += width) {
    const size_t end = std::min(begin + width, points.size());
    double sum = 0.0;
    double largest = points[begin].value;
    for (size_t i = begin; i < end; ++i) {
      sum += points[i].value;
      largest = std::max(largest, points[i].value);
    }
    const double mean = sum / static_cast<double>(end - begin);
    out.push_back({points[end - 1].step, keep == Keep::Mean ? mean : largest});
  }
  return out;
}

nlohmann::ordered_json charts(const RunRecord& record) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const ChartSpec& spec : kCharts) {
    nlohmann::ordered_json lines = nlohmann::ordered_json::array();
    for (const LineSpec& line : spec.lines) {
      const auto& entries = line.source == Source::Steps ? record.steps : record.evals;
      const std::vector<Point> points = thin(series(entries, line.field), kMaxPoints, line.keep);
      if (!points.empty()) lines.push_back(line_json(line.label, points));
    }
    if (lines.empty()) continue;
    const auto value =
        spec.reference != nullptr ? record.start.find(spec.reference) : record.start.end();
    if (value != record.start.end() && value->is_number()) {
      lines.push_back(line_json("entropy of a byte given the one before", level(record, *value)));
      lines.back()["reference"] = true;
    }
    out.push_back({{"title", spec.title},
                   {"unit", spec.unit},
                   {"caption", spec.caption},
                   {"smooth", spec.smooth},
                   {"from_zero", spec.from_zero},
                   {"lines", std::move(lines)}});
  }
  return out;
}

}  // namespace lethe::report
