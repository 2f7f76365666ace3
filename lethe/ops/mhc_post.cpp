#include "lethe/ops/mhc_post.h"

#include <fmt/ranges.h>

#include <ATen/ops/bmm.h>

#include "lethe/base/error.h"
#include "lethe/core/describe.h"
#include "lethe/core/node.h"
#include "lethe/kernels/cpu/mhc_post.h"
#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/fused.h"
#include "lethe/ops/mhc_mix.h"
#include "lethe/ops/register.h"

namespace lethe::ops {
namespace {

using at::Tensor;

Fusable fusable("mhc_post");

void check_weights(const char* name, const Tensor& t, at::IntArrayRef shape, at::ScalarType dtype) {
  LETHE_CHECK(ShapeError,
              t.sizes() == shape,
              "mhc_post: {} must be [{}], got {}; pass what mhc_pre returned",
              name,
              fmt::join(shape, ","),
              shape_text(t));
  LETHE_CHECK(DtypeError,
              t.scalar_type() == dtype,
              "mhc_post: {} must be {}, got {}; mixing weights are not cast down",
              name,
              c10::toString(dtype),
              dtype_text(t));
}

void check(const Tensor& y, const Tensor& streams, const Tensor& post, const Tensor& comb) {
  check_streams("mhc_post", streams);
  const int64_t tokens = streams.size(0), n = streams.size(1), width = streams.size(2);
  LETHE_CHECK(ShapeError,
              y.dim() == 2 && y.size(0) == tokens && y.size(1) == width,
              "mhc_post: y must be [T,D] = [{},{}], got {}; it is the sublayer's output",
              tokens,
              width,
              shape_text(y));
  LETHE_CHECK(DtypeError,
              y.scalar_type() == streams.scalar_type(),
              "mhc_post: y must have the streams' dtype {}, got {}; cast one of them",
              dtype_text(streams),
              dtype_text(y));
  check_weights("post", post, {tokens, n}, compute_dtype(streams));
  check_weights("comb", comb, {tokens, n, n}, compute_dtype(streams));
}

/// All as the kernel takes them.
struct Operands {
  Tensor y, x, post, comb;

  Operands(const Tensor& y_, const Tensor& streams, const Tensor& post_, const Tensor& comb_)
      : y(widen(y_).contiguous()),
        x(kernel_streams(streams)),
        post(post_.contiguous()),
        comb(comb_.contiguous()) {}

  [[nodiscard]] kernels::MhcPost arguments() const {
    return {.parallel = aten_pool(),
            .tokens = x.size(0),
            .streams = x.size(1),
            .width = x.size(2),
            .token_stride = x.stride(0),
            .stream_stride = x.stride(1),
            .y = y.const_data_ptr<float>(),
            .x = x.const_data_ptr<float>(),
            .post = post.const_data_ptr<float>(),
            .comb = comb.const_data_ptr<float>()};
  }
};

Tensor forward(const Tensor& y, const Tensor& streams, const Tensor& post, const Tensor& comb) {
  check(y, streams, post, comb);
  if (fusable.runs(streams)) {
    const Operands in(y, streams, post, comb);
    const Tensor out = at::empty(streams.sizes(), post.options());
    kernels::mhc_post_forward({.in = in.arguments(), .out = out.data_ptr<float>()});
    return out.to(streams.scalar_type());
  }
  return reference::mhc_post(y, streams, post, comb);
}

Tensor meta(const Tensor& y, const Tensor& streams, const Tensor& post, const Tensor& comb) {
  check(y, streams, post, comb);
  return at::empty(streams.sizes(), streams.options());
}

// dy = sum_j post[j] g[j],  dX[i] = sum_j comb[i][j] g[j],  dpost[j] = <g[j], y>,  dcomb[i][j] =
// <g[j], X[i]>.
Tensors backward(const BackwardInput& in) {
  const Tensor &y = in.saved[0], &streams = in.saved[1], &post = in.saved[2], &comb = in.saved[3];
  const Tensor g = widen(in.grads[0]);
  Tensor d_y, d_streams, d_post, d_comb;
  if (in.needed[0]) d_y = at::bmm(post.unsqueeze(1), g).squeeze(1).to(y.scalar_type());
  if (in.needed[1]) d_streams = at::bmm(comb, g).to(streams.scalar_type());
  if (in.needed[2]) d_post = at::bmm(g, widen(y).unsqueeze(-1)).squeeze(-1);
  if (in.needed[3]) d_comb = at::bmm(widen(streams), g.transpose(1, 2));
  return {d_y, d_streams, d_post, d_comb};
}

Tensors fused_backward(const BackwardInput& in) {
  const Tensor &y = in.saved[0], &streams = in.saved[1], &post = in.saved[2], &comb = in.saved[3];
  const Operands operands(y, streams, post, comb);
  const Tensor g = kernel_gradient(in.grads[0]);
  const auto made = [&](size_t i, const Tensor& like) {
    return in.needed[i] ? at::empty(like.sizes(), g.options()) : Tensor();
  };
  const Tensor d_y = made(0, y), d_streams = made(1, streams), d_post = made(2, post),
               d_comb = made(3, comb);
  kernels::mhc_post_backward({.in = operands.arguments(),
                              .d_out = g.const_data_ptr<float>(),
                              .d_y = mutable_data_or_null(d_y),
                              .d_x = mutable_data_or_null(d_streams),
                              .d_post = mutable_data_or_null(d_post),
                              .d_comb = mutable_data_or_null(d_comb)});
  const auto narrowed = [&](const Tensor& d) {
    return d.defined() ? d.to(streams.scalar_type()) : d;
  };
  return {narrowed(d_y), narrowed(d_streams), d_post, d_comb};
}

Tensor autograd(const Tensor& y, const Tensor& streams, const Tensor& post, const Tensor& comb) {
  Tensor next;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    next = mhc_post(y, streams, post, comb);
  }
  record("lethe::mhc_post",
         {y, streams, post, comb},
         {next},
         {y, streams, post, comb},
         fusable.would_run(streams) ? fused_backward : backward);
  return next;
}

LETHE_REGISTER_OP(mhc_post,
                  "mhc_post(Tensor y, Tensor streams, Tensor post, Tensor comb) -> Tensor",
                  forward,
                  meta,
                  autograd)

}  // namespace

Tensor mhc_post(const Tensor& y, const Tensor& streams, const Tensor& post, const Tensor& comb) {
  return LETHE_OP_HANDLE(mhc_post,
                         Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&))
      .call(y, streams, post, comb);
}

}  // namespace lethe::ops
