#pragma once

#include <cstdint>

#include "lethe/kernels/cpu/parallel.h"

// Plain products of matrices of a step's sizes: the linear layers (lethe/ops/linear.h) and the
// logits. Not for matrix times vector.
namespace lethe::kernels {

/// Element (row, column) at data[row * row_stride + column * column_stride]; one stride is 1.
struct StridedMatrix {
  const float* data;
  int64_t row_stride, column_stride;
};

/// c [rows,columns] = a [rows,depth] b [depth,columns], or c += a b with `add`; depth 0: the sums
/// are zero.
/// c  element (row, column) at c[row * c_row + column], outside of a and b
/// scratch: as many floats as matmul_scratch says. The order of an element's sum depends on depth
/// and instruction set alone, not on rows, columns, strides or threads.
struct Matmul {
  Parallel parallel;
  int64_t rows, columns, depth;
  StridedMatrix a, b;
  float* c;
  int64_t c_row;
  bool add;
  float* scratch;
};

void matmul(const Matmul& a);

/// Floats of scratch for `threads` threads: a block of b and for each thread rows of a, at most
/// 4 MiB and half a MiB a thread, whatever the sizes.
struct MatmulSizes {
  int64_t rows, columns, depth;
  int threads;
};

int64_t matmul_scratch(const MatmulSizes& a);

}  // namespace lethe::kernels
