#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "lethe/base/error.h"
#include "lethe/report/run_record.h"
#include "lethe/report/runs.h"
#include "lethe/report/series.h"

namespace lethe::report {
namespace {

namespace fs = std::filesystem;
using Object = RunRecord::Object;
using Facts = std::map<std::string, std::string>;
using Curve = std::map<int64_t, double>;

/// One run, as a comparison needs it.
struct Compared {
  Facts facts;
  std::set<int64_t> steps;
  Curve loss;
  Curve valid_loss;
};

void flatten(const std::string& prefix, const Object& fields, Facts& out) {
  for (const auto& [name, value] : fields.items()) {
    if (value.is_object()) {
      flatten(prefix + name + ".", value, out);
    } else {
      out[prefix + name] = value.is_string() ? value.get<std::string>() : value.dump();
    }
  }
}

Facts facts_of(Object start, bool has_settings) {
  for (const char* key : {"model", "train"})  // the settings say the same in full
    if (has_settings) start.erase(key);
  Facts facts;
  flatten("", start, facts);
  return facts;
}

Curve curve(const std::vector<Object>& entries, const char* field) {
  Curve out;
  for (const Point& point : series(entries, field))
    out[static_cast<int64_t>(point.step)] = point.value;
  return out;
}

std::vector<Compared> read_all(std::span<const fs::path> folders) {
  std::vector<RunRecord> records;
  for (const fs::path& folder : folders) records.push_back(read_run_record(folder / "run.jsonl"));
  const bool has_settings = std::all_of(records.begin(), records.end(), [](const RunRecord& r) {
    return r.start.contains("settings");
  });
  std::vector<Compared> runs;
  for (const RunRecord& record : records) {
    Compared run{.facts = facts_of(record.start, has_settings),
                 .loss = curve(record.steps, "loss"),
                 .valid_loss = curve(record.evals, "valid_loss")};
    for (const Object& step : record.steps) run.steps.insert(step["step"].get<int64_t>());
    runs.push_back(std::move(run));
  }
  return runs;
}

template <class Map>
std::optional<typename Map::mapped_type> found_in(const Map& map,
                                                  const typename Map::key_type& key) {
  const auto found = map.find(key);
  if (found == map.end()) return std::nullopt;
  return found->second;
}

std::vector<RunComparison::Difference> differences(const std::vector<Compared>& runs) {
  std::set<std::string> keys;
  for (const Compared& run : runs)
    for (const auto& [key, value] : run.facts) keys.insert(key);
  std::vector<RunComparison::Difference> out;
  for (const std::string& key : keys) {
    RunComparison::Difference row{.key = key};
    for (const Compared& run : runs) row.values.push_back(found_in(run.facts, key));
    const auto& first = row.values.front();
    if (std::any_of(row.values.begin(), row.values.end(), [&](auto& v) { return v != first; }))
      out.push_back(std::move(row));
  }
  return out;
}

std::vector<int64_t> common_steps(const std::vector<Compared>& runs) {
  std::vector<int64_t> out;
  for (const int64_t step : runs.front().steps)
    if (std::all_of(
            runs.begin(), runs.end(), [&](const Compared& r) { return r.steps.contains(step); }))
      out.push_back(step);
  return out;
}

std::optional<uint64_t> loss_bits(const Compared& run, int64_t step) {
  const auto found = run.loss.find(step);
  if (found == run.loss.end()) return std::nullopt;
  return std::bit_cast<uint64_t>(found->second);
}

void find_parting(RunComparison& out,
                  const std::vector<Compared>& runs,
                  const std::vector<int64_t>& common) {
  for (const int64_t step : common) {
    const auto first = loss_bits(runs.front(), step);
    if (std::any_of(
            runs.begin(), runs.end(), [&](auto& run) { return loss_bits(run, step) != first; })) {
      out.first_different_step = step;
      return;
    }
    out.last_equal_step = step;
  }
}

/// At most kMaxComparedSteps of the common steps, evenly spread; an inner one gives way to the
/// nearest step with a validation loss, unless that is nearer to its neighbour.
std::set<int64_t> chosen_steps(const std::vector<int64_t>& common, const Curve& valid) {
  if (common.size() <= kMaxComparedSteps) return {common.begin(), common.end()};
  const double stride =
      static_cast<double>(common.size() - 1) / static_cast<double>(kMaxComparedSteps - 1);
  std::set<int64_t> chosen{common.front(), common.back()};
  for (size_t i = 1; i + 1 < kMaxComparedSteps; ++i) {
    const auto at = static_cast<size_t>(stride * static_cast<double>(i) + 0.5);
    const auto reach = static_cast<size_t>(stride / 2);
    size_t best = at;
    for (size_t off = 0; off <= reach && !valid.contains(common[best]); ++off) {
      if (valid.contains(common[at - off])) best = at - off;
      if (valid.contains(common[at + off])) best = at + off;
    }
    chosen.insert(common[best]);
  }
  return chosen;
}

}  // namespace

RunComparison compare_runs(std::span<const fs::path> folders) {
  LETHE_CHECK(ConfigError,
              folders.size() >= 2,
              "--compare: must be given at least two runs, got {}; name the folders of the runs",
              folders.size());
  const std::vector<Compared> runs = read_all(folders);
  const std::vector<int64_t> common = common_steps(runs);
  RunComparison out{.runs = {folders.begin(), folders.end()},
                    .differences = differences(runs),
                    .num_common = static_cast<int64_t>(common.size())};
  for (const int64_t step : chosen_steps(common, runs.front().valid_loss)) {
    RunComparison::Row row{.step = step};
    for (const Compared& run : runs) {
      row.losses.push_back(found_in(run.loss, step));
      row.valid_losses.push_back(found_in(run.valid_loss, step));
    }
    out.rows.push_back(std::move(row));
  }
  find_parting(out, runs, common);
  return out;
}

}  // namespace lethe::report
