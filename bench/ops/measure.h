#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/ops/op_case.h"
#include "bench/support/peaks.h"
#include "bench/support/table.h"

namespace benchmark {
class State;
}

namespace lethe::bench {

enum class Pass { Forward, ForwardBackward };

/// What one benchmark found out.
struct OpResult {
  std::string op, size;
  Pass pass = Pass::Forward;
  std::string implementation;  // "fused (avx2)" | "reference"
  double seconds = 0;          // median
  OpWork work;
  int64_t temporary_bytes = 0;  // highest beside operands, results, what is saved, and gradients
};

/// Runs the case once to warm up and to count its bytes, then once per iteration of `state`.
[[nodiscard]] OpResult measure(benchmark::State& state, const OpCase& op_case, Pass pass);

/// Share of the time that max(FLOPs / peak, bytes / triad) makes of the measured one.
[[nodiscard]] double roofline_share(const OpResult& result, const Peaks& peaks);

/// All results, one row each.
[[nodiscard]] Table result_table(const std::vector<OpResult>& results, const Peaks& peaks);

}  // namespace lethe::bench
