#include "lethe/kernels/cpu/experts.h"

#include "lethe/kernels/cpu/isa_dispatch.h"

namespace lethe::kernels {

LETHE_DISPATCH_ISA(void, experts_forward, ExpertsForward)
LETHE_DISPATCH_ISA(void, experts_backward, ExpertsBackward)
LETHE_DISPATCH_ISA(int64_t, experts_forward_scratch, ExpertsScratch)
LETHE_DISPATCH_ISA(int64_t, experts_backward_scratch, ExpertsScratch)

void sort_routes(const SortRoutes& a) {
  for (int64_t e = 0; e <= a.experts; ++e) a.begins[e] = 0;
  for (int64_t route = 0; route < a.routes; ++route) ++a.begins[a.indices[route] + 1];
  a.tile_begins[0] = 0;
  for (int64_t e = 0; e < a.experts; ++e) {
    const int64_t rows = a.begins[e + 1];
    a.tile_begins[e + 1] = a.tile_begins[e] + (rows + kExpertTile - 1) / kExpertTile;
    a.begins[e + 1] += a.begins[e];
  }
  // begins[e] runs to the end of expert e while its rows are placed: one back afterwards.
  for (int64_t route = 0; route < a.routes; ++route)
    a.order[a.begins[a.indices[route]]++] = static_cast<int32_t>(route);
  for (int64_t e = a.experts; e > 0; --e) a.begins[e] = a.begins[e - 1];
  a.begins[0] = 0;
}

}  // namespace lethe::kernels
