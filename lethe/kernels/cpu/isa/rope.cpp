#include "lethe/kernels/cpu/rope.h"

#include "lethe/kernels/cpu/isa/rotary.h"
#include "lethe/kernels/cpu/isa/rows.h"

namespace lethe::kernels::LETHE_ISA {

void rope(const Rope& a) {
  const int64_t rotated = 2 * a.rotary.pairs, kept = a.width - rotated;
  for_rows(a.parallel, a.tokens, a.heads * a.width, [&](int64_t token, int thread) {
    const RotaryTable table = rotary_table(a.rotary, token, thread, a.inverse);
    for (int64_t row = token * a.heads; row < (token + 1) * a.heads; ++row) {
      const float* x = a.x + row * a.width;
      float* y = a.y + row * a.width;
      for_vectors(kept, [&](int64_t i, int64_t count) { put(y + i, get(x + i, count), count); });
      for_vectors(rotated, [&](int64_t i, int64_t count) {
        put(y + kept + i, rotate(get(x + kept + i, count), table, i), count);
      });
    }
  });
}

}  // namespace lethe::kernels::LETHE_ISA
