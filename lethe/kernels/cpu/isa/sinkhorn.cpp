#include "lethe/kernels/cpu/sinkhorn.h"

#include "lethe/kernels/cpu/isa/rows.h"
#include "lethe/kernels/cpu/isa/sinkhorn_lanes.h"

namespace lethe::kernels::LETHE_ISA {
namespace {

/// f(first matrix, matrices of this vector, scratch of the thread) for every vector of matrices.
template <class F>
void for_lane_groups(
    const Parallel& parallel, int64_t count, int64_t n, int64_t iterations, float* scratch, F&& f) {
  const int64_t own = sinkhorn_scratch_floats(n, iterations, 1);
  for_rows(parallel, (count + kLanes - 1) / kLanes, n * n * kLanes, [&](int64_t group, int thread) {
    const int64_t first = group * kLanes, left = count - first;
    f(first, left < kLanes ? left : kLanes, scratch + thread * own);
  });
}

}  // namespace

void sinkhorn_forward(const SinkhornForward& a) {
  const int64_t n = a.n, size = n * n;
  for_lane_groups(
      a.parallel, a.count, n, 1, a.scratch, [&](int64_t first, int64_t count, float* m) {
        to_lanes(a.logits + first * size, size, size, count, m);
        sinkhorn_lanes(n, a.iterations, a.eps, m);
        from_lanes(m, size, count, a.comb + first * size, size);
      });
}

void sinkhorn_backward(const SinkhornBackward& a) {
  const int64_t n = a.n, size = n * n;
  const auto group = [&](int64_t first, int64_t count, float* scratch) {
    float *logits = scratch, *d = logits + size * kLanes, *steps = d + size * kLanes;
    to_lanes(a.logits + first * size, size, size, count, logits);
    to_lanes(a.d_comb + first * size, size, size, count, d);
    sinkhorn_lanes_backward(n, a.iterations, a.eps, logits, d, steps);
    from_lanes(d, size, count, a.d_logits + first * size, size);
  };
  for_lane_groups(a.parallel, a.count, n, a.iterations, a.scratch, group);
}

}  // namespace lethe::kernels::LETHE_ISA
