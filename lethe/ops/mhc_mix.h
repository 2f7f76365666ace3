#pragma once

#include <string_view>

#include <ATen/core/Tensor.h>

#include "lethe/kernels/cpu/mhc_site.h"

// Inside lethe/ops only: what mhc_pre and mhc_head share.
namespace lethe::ops {

/// The normalised projection of the streams, x [T, nD]:
///   mix = (x fn^T) * r [T, M],  r = rsqrt(mean(x^2) + norm_eps) [T, 1]
struct MhcMix {
  at::Tensor mix, r;
};

MhcMix mhc_mix(const at::Tensor& x, const at::Tensor& fn, double norm_eps);

/// Gradients of mix; what is not needed stays undefined.
struct MhcMixGrad {
  at::Tensor d_x, d_fn;
};

MhcMixGrad mhc_mix_backward(const at::Tensor& d_mix,
                            const MhcMix& mixed,
                            const at::Tensor& x,
                            const at::Tensor& fn,
                            bool needs_x,
                            bool needs_fn);

/// The three scales of a site spread over the rows of its projection, [3] -> [(2 + n) n].
at::Tensor mhc_scale_rows(const at::Tensor& scale, int64_t n);

struct MhcParameters {
  const at::Tensor &fn, &base, &scale;
};

/// ShapeError or DtypeError in the name of `op` unless streams is [T, n, D], floating.
void check_streams(std::string_view op, const at::Tensor& streams);

/// The same unless fn is [rows, nD], base [rows] and scale [scales], all of the computing type.
void check_mhc_parameters(std::string_view op,
                          const at::Tensor& streams,
                          const MhcParameters& p,
                          int64_t rows,
                          int64_t scales);

/// The streams as a kernel takes them: widened, their last dimension dense, the others as they lie,
/// so that streams that are one row expanded are not copied.
at::Tensor kernel_streams(const at::Tensor& streams);

/// A site for the kernels, without scratch; the tensors must live as long as it does.
kernels::MhcSite kernel_site(const at::Tensor& streams,
                             const MhcParameters& dense,
                             double norm_eps,
                             double hc_eps);

/// The gradient as a kernel takes it, undefined where none arrived.
at::Tensor kernel_gradient(const at::Tensor& grad);

const float* data_or_null(const at::Tensor& t);
float* mutable_data_or_null(const at::Tensor& t);

}  // namespace lethe::ops
