#pragma once

#include <ATen/core/Tensor.h>

// Inside lethe/ops only: plain products of matrices, by ATen or by the kernel
// (lethe/kernels/cpu/matmul.h).
namespace lethe::ops {

/// c = a b, or c += a b with `add`: c [m,n] with adjacent columns, a [m,k], b [k,n], any strides.
using MatmulInto = void (*)(const at::Tensor& c,
                            const at::Tensor& a,
                            const at::Tensor& b,
                            bool add);

void aten_matmul_into(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, bool add);

/// On the CPU and in float32 only. Bits do not depend on the number of threads.
void fused_matmul_into(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, bool add);

/// The product as a new tensor.
at::Tensor aten_matmul(const at::Tensor& a, const at::Tensor& b);
at::Tensor fused_matmul(const at::Tensor& a, const at::Tensor& b);

}  // namespace lethe::ops
