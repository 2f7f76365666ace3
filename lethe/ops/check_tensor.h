#pragma once

#include <ATen/core/Tensor.h>

// Inside lethe/ops only: argument checks that the wrappers share. `op` and `name` begin the
// message, `letters` are the dimensions as the header names them, `advice` ends it.
namespace lethe::ops {

/// ShapeError unless t has exactly these sizes; -1 allows any.
void check_sizes(const char* op,
                 const char* name,
                 const char* letters,
                 const at::Tensor& t,
                 at::IntArrayRef sizes,
                 const char* advice);

/// DtypeError unless t is float32 or float64.
void check_floating(const char* op, const char* name, const at::Tensor& t);

/// DtypeError unless t has this dtype.
void check_dtype(const char* op,
                 const char* name,
                 const at::Tensor& t,
                 at::ScalarType dtype,
                 const char* advice);

/// DtypeError unless the weight computes in x's type: x's own, or bfloat16 with float32.
void check_weight_dtype(const char* op, const char* name, const at::Tensor& t, const at::Tensor& x);

/// ConfigError unless the SwiGLU limit is 0 (no clamp) or positive.
void check_limit(const char* op, double limit);

}  // namespace lethe::ops
