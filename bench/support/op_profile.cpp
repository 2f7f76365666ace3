#include "bench/support/op_profile.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ATen/record_function.h>

namespace lethe::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kEngine = "autograd::engine::evaluate_function: ";

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool is_gemm(std::string_view name) {
  return name == "aten::mm" || name == "aten::addmm" || name == "aten::bmm" ||
         name == "aten::baddbmm";
}

// The calls of one thread as they nest. The outermost one is a row of the table; inside it the
// outermost operators of ATen are its parts.
struct Recorder {
  std::map<std::pair<std::string, std::string>, OpTime> rows;
  std::string pass;
  int depth = 0, aten_depth = 0;
  OpTime open;  // the outermost call, while it runs
  Clock::time_point open_since, aten_since;

  void start(const at::RecordFunction& fn) {
    const std::string_view name = fn.name();
    if (depth++ == 0) {
      open = {};
      open.name = name.starts_with(kEngine) ? name.substr(kEngine.size()) : name;
      if (!name.starts_with(kEngine)) open.name += sizes(fn);
      open_since = Clock::now();
    } else if (depth == 2 && fn.scope() == at::RecordScope::BACKWARD_FUNCTION) {
      open.name += sizes(fn);
    }
    if (name.starts_with("aten::") && depth > 1 && aten_depth++ == 0) {
      in_gemm = false;
      aten_since = Clock::now();
    }
    in_gemm = in_gemm || (aten_depth > 0 && is_gemm(name));
  }

  void end(const at::RecordFunction& fn) {
    --depth;
    if (depth > 0 && std::string_view(fn.name()).starts_with("aten::") && --aten_depth == 0)
      (in_gemm ? open.gemm : open.copies) += seconds_since(aten_since);
    if (depth > 0) return;
    in_gemm = false;
    open.seconds = seconds_since(open_since);
    OpTime& row = rows[{pass, open.name}];
    row.pass = pass;
    row.name = open.name;
    ++row.calls;
    row.seconds += open.seconds;
    row.gemm += open.gemm;
    row.copies += open.copies;
  }

 private:
  // The sizes of the first two tensors: what tells the linear layers of a model apart.
  static std::string sizes(const at::RecordFunction& fn) {
    std::string text;
    int found = 0;
    for (const c10::IValue& value : fn.inputs()) {
      if (!value.isTensor() || !value.toTensor().defined() || found == 2) continue;
      text += fmt::format(" [{}]", fmt::join(value.toTensor().sizes(), ","));
      ++found;
    }
    return text;
  }

  bool in_gemm = false;
};

// Callbacks are plain functions: what they fill must be a global.
Recorder& recorder() {
  static Recorder instance;
  return instance;
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& fn) {
  recorder().start(fn);
  return nullptr;
}

void on_end(const at::RecordFunction& fn, at::ObserverContext*) {
  recorder().end(fn);
}

}  // namespace

OpProfile::OpProfile() {
  recorder() = Recorder();
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(on_start, on_end)
          .needsInputs(true)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

OpProfile::~OpProfile() {
  at::removeCallback(handle_);
}

void OpProfile::begin(const std::string& pass) {
  recorder().pass = pass;
}

std::vector<OpTime> OpProfile::times() const {
  std::vector<OpTime> out;
  for (const auto& [key, row] : recorder().rows) out.push_back(row);
  std::sort(out.begin(), out.end(), [](const OpTime& a, const OpTime& b) {
    return a.seconds > b.seconds;
  });
  return out;
}

std::string profile_text(const std::vector<OpTime>& times, int64_t steps, double step_seconds) {
  constexpr double kHidden = 5e-4;  // share of the step below which a row is summed up
  std::map<std::string, double> by_pass;
  OpTime rest{.name = "(each below 0.05 %)"};
  std::string text = fmt::format("{:<8} {:>6} {:>10} {:>7} {:>10} {:>10}  {}\n",
                                 "pass",
                                 "calls",
                                 "ms/step",
                                 "share",
                                 "gemm ms",
                                 "aten ms",
                                 "call");
  const auto line = [&](const OpTime& t) {
    const double ms = 1e3 / static_cast<double>(steps);
    text += fmt::format("{:<8} {:>6} {:>10.2f} {:>6.1f}% {:>10.2f} {:>10.2f}  {}\n",
                        t.pass,
                        t.calls / steps,
                        t.seconds * ms,
                        100 * t.seconds / step_seconds,
                        t.gemm * ms,
                        t.copies * ms,
                        t.name);
  };
  double sum = 0;
  for (const OpTime& t : times) {
    sum += t.seconds;
    by_pass[t.pass] += t.seconds;
    if (t.seconds >= kHidden * step_seconds) {
      line(t);
      continue;
    }
    rest.calls += t.calls;
    rest.seconds += t.seconds;
    rest.gemm += t.gemm;
    rest.copies += t.copies;
  }
  line(rest);
  for (const auto& [pass, seconds] : by_pass)
    line({.pass = pass, .name = "(sum)", .seconds = seconds});
  line({.name = "(between calls)", .seconds = step_seconds - sum});
  return text;
}

}  // namespace lethe::bench
