#include "lethe/kernels/cpu/scatter_rows.h"

namespace lethe::kernels {
namespace {

template <class T>
void add_rows_of(
    const int64_t* row_ids, int64_t count, int64_t width, const T* source, T* destination) {
  for (int64_t i = 0; i < count; ++i) {
    if (row_ids[i] < 0) continue;
    const T* from = source + i * width;
    T* to = destination + row_ids[i] * width;
    for (int64_t j = 0; j < width; ++j) to[j] += from[j];
  }
}

}  // namespace

void add_rows(
    const int64_t* row_ids, int64_t count, int64_t width, const float* source, float* destination) {
  add_rows_of(row_ids, count, width, source, destination);
}

void add_rows(const int64_t* row_ids,
              int64_t count,
              int64_t width,
              const double* source,
              double* destination) {
  add_rows_of(row_ids, count, width, source, destination);
}

}  // namespace lethe::kernels
