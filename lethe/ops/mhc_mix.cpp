#include "lethe/ops/mhc_mix.h"

#include <fmt/ranges.h>

#include <ATen/ops/mm.h>

#include "lethe/base/error.h"
#include "lethe/core/describe.h"
#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/fused.h"

namespace lethe::ops {
namespace {

void check_parameter(std::string_view op,
                     const char* name,
                     const at::Tensor& t,
                     at::IntArrayRef shape,
                     at::ScalarType dtype) {
  LETHE_CHECK(ShapeError,
              t.sizes() == shape,
              "{}: {} must be [{}], got {}; does it belong to another number of streams?",
              op,
              name,
              fmt::join(shape, ","),
              shape_text(t));
  LETHE_CHECK(DtypeError,
              t.scalar_type() == dtype,
              "{}: {} must be {}, got {}; hyper-connection weights are fp32-kept",
              op,
              name,
              c10::toString(dtype),
              dtype_text(t));
}

}  // namespace

MhcMix mhc_mix(const at::Tensor& x, const at::Tensor& fn, double norm_eps) {
  const at::Tensor r = (x.square().mean(-1, /*keepdim=*/true) + norm_eps).rsqrt();
  return {at::mm(x, fn.t()) * r, r};
}

// With z = x fn^T:  dz = r*dmix,  dfn = dz^T x,  dx = dz fn - <dmix, z> * r^3 / (nD) * x.
MhcMixGrad mhc_mix_backward(const at::Tensor& d_mix,
                            const MhcMix& mixed,
                            const at::Tensor& x,
                            const at::Tensor& fn,
                            bool needs_x,
                            bool needs_fn) {
  const at::Tensor dz = d_mix * mixed.r;
  MhcMixGrad grad;
  if (needs_fn) grad.d_fn = at::mm(dz.t(), x);
  if (!needs_x) return grad;
  const at::Tensor through_r = (d_mix * mixed.mix).sum(-1, /*keepdim=*/true) * mixed.r.square();
  grad.d_x = at::mm(dz, fn).addcmul_(x, through_r / x.size(1), -1);
  return grad;
}

at::Tensor mhc_scale_rows(const at::Tensor& scale, int64_t n) {
  return at::cat({scale.narrow(0, 0, 1).expand({n}),
                  scale.narrow(0, 1, 1).expand({n}),
                  scale.narrow(0, 2, 1).expand({n * n})});
}

void check_streams(std::string_view op, const at::Tensor& streams) {
  LETHE_CHECK(ShapeError,
              streams.dim() == 3 && streams.size(1) >= 1 && streams.size(2) >= 1,
              "{}: streams must be [T,n,D], got {}; flatten batch and sequence into tokens",
              op,
              shape_text(streams));
  LETHE_CHECK(DtypeError,
              streams.is_floating_point(),
              "{}: streams must be floating, got {}; cast them first",
              op,
              dtype_text(streams));
}

void check_mhc_parameters(std::string_view op,
                          const at::Tensor& streams,
                          const MhcParameters& p,
                          int64_t rows,
                          int64_t scales) {
  const at::ScalarType dtype = compute_dtype(streams);
  check_parameter(op, "fn", p.fn, {rows, streams.size(1) * streams.size(2)}, dtype);
  check_parameter(op, "base", p.base, {rows}, dtype);
  check_parameter(op, "scale", p.scale, {scales}, dtype);
}

at::Tensor kernel_streams(const at::Tensor& streams) {
  const at::Tensor x = widen(streams);
  return x.size(2) == 1 || x.stride(2) == 1 ? x : x.contiguous();
}

kernels::MhcSite kernel_site(const at::Tensor& streams,
                             const MhcParameters& dense,
                             double norm_eps,
                             double hc_eps) {
  return {.parallel = aten_pool(),
          .tokens = streams.size(0),
          .streams = streams.size(1),
          .width = streams.size(2),
          .rows = dense.base.size(0),
          .scales = dense.scale.size(0),
          .token_stride = streams.stride(0),
          .stream_stride = streams.stride(1),
          .x = streams.const_data_ptr<float>(),
          .fn = dense.fn.const_data_ptr<float>(),
          .base = dense.base.const_data_ptr<float>(),
          .scale = dense.scale.const_data_ptr<float>(),
          .norm_eps = static_cast<float>(norm_eps),
          .hc_eps = static_cast<float>(hc_eps),
          .scratch = nullptr};
}

at::Tensor kernel_gradient(const at::Tensor& grad) {
  return grad.defined() ? widen(grad).contiguous() : grad;
}

const float* data_or_null(const at::Tensor& t) {
  return t.defined() ? t.const_data_ptr<float>() : nullptr;
}

float* mutable_data_or_null(const at::Tensor& t) {
  return t.defined() ? t.data_ptr<float>() : nullptr;
}

}  // namespace lethe::ops
