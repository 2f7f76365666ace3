#pragma once

#include <cstdint>

namespace lethe::kernels {

/// destination[row_ids[i], :] += source[i, :] for i ascending: one fixed order for every element,
/// whatever the thread count. Rows with id -1 are skipped. destination [*, width], source [count,
/// width], both contiguous; ids must lie in [-1, rows of destination). Source: spec 2 5.6
/// (deterministic accumulation).
void add_rows(
    const int64_t* row_ids, int64_t count, int64_t width, const float* source, float* destination);
void add_rows(const int64_t* row_ids,
              int64_t count,
              int64_t width,
              const double* source,
              double* destination);

}  // namespace lethe::kernels
