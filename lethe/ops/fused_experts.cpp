#include "lethe/ops/fused_experts.h"

#include <limits>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "lethe/base/error.h"
#include "lethe/kernels/cpu/experts.h"
#include "lethe/ops/fused.h"

namespace lethe::ops {
namespace {

// The index arrays behind kernels::ExpertRoutes.
struct SortedRoutes {
  at::Tensor order, begins, tile_begins;
  kernels::ExpertRoutes routes;
};

SortedRoutes one_expert(int64_t tokens) {
  const auto pair = [](int64_t end) {
    at::Tensor t = at::zeros({2}, at::kLong);
    t.data_ptr<int64_t>()[1] = end;
    return t;
  };
  const int64_t tiles = (tokens + kernels::kExpertTile - 1) / kernels::kExpertTile;
  SortedRoutes out{.order = {}, .begins = pair(tokens), .tile_begins = pair(tiles), .routes = {}};
  out.routes = {.experts = 1,
                .choices = 1,
                .order = nullptr,
                .begins = out.begins.const_data_ptr<int64_t>(),
                .tile_begins = out.tile_begins.const_data_ptr<int64_t>()};
  return out;
}

SortedRoutes sorted(const at::Tensor& indices, int64_t experts) {
  LETHE_CHECK(ShapeError,
              indices.numel() <= std::numeric_limits<int32_t>::max(),
              "experts [routes]: T*k must be below 2^31, got {}; pass fewer tokens at a time",
              indices.numel());
  const at::Tensor packed = indices.contiguous();
  SortedRoutes out{.order = at::empty({indices.numel()}, at::kInt),
                   .begins = at::empty({experts + 1}, at::kLong),
                   .tile_begins = at::empty({experts + 1}, at::kLong),
                   .routes = {}};
  kernels::sort_routes({.routes = indices.numel(),
                        .experts = experts,
                        .indices = packed.const_data_ptr<int32_t>(),
                        .order = out.order.data_ptr<int32_t>(),
                        .begins = out.begins.data_ptr<int64_t>(),
                        .tile_begins = out.tile_begins.data_ptr<int64_t>()});
  out.routes = {.experts = experts,
                .choices = indices.size(1),
                .order = out.order.const_data_ptr<int32_t>(),
                .begins = out.begins.const_data_ptr<int64_t>(),
                .tile_begins = out.tile_begins.const_data_ptr<int64_t>()};
  return out;
}

// Everything contiguous, and the routes sorted.
struct Prepared {
  at::Tensor x, weights, fc1, fc2;
  SortedRoutes sorted_routes;
  kernels::ExpertSizes sizes;

  explicit Prepared(const ExpertInput& in)
      : x(in.x.contiguous()),
        weights(in.weights.defined() ? in.weights.contiguous() : in.weights),
        fc1(in.fc1.contiguous()),
        fc2(in.fc2.contiguous()),
        sorted_routes(in.indices.defined() ? sorted(in.indices, fc1.size(0))
                                           : one_expert(x.size(0))),
        sizes{.width = x.size(1), .inner = fc2.size(-1)} {}
};

const float* data_or_null(const at::Tensor& t) {
  return t.defined() ? t.const_data_ptr<float>() : nullptr;
}

float* mutable_or_null(const at::Tensor& t) {
  return t.defined() ? t.data_ptr<float>() : nullptr;
}

kernels::ExpertMatrices matrices(const at::Tensor& t) {
  if (t.scalar_type() == at::kBFloat16)
    return {.wide = nullptr,
            .narrow = reinterpret_cast<const uint16_t*>(t.const_data_ptr<at::BFloat16>())};
  return {.wide = t.const_data_ptr<float>(), .narrow = nullptr};
}

}  // namespace

ExpertOutput fused_experts(const ExpertInput& in, bool keep_projected) {
  const int64_t routes = in.indices.defined() ? in.indices.numel() : in.x.size(0);
  ExpertOutput out{
      .y = at::zeros(in.x.sizes(), in.x.options()),
      .projected = at::empty({keep_projected ? routes : 0, 2 * in.fc2.size(-1)}, in.x.options())};
  if (in.fc2.numel() == 0) return out;
  const Prepared p(in);
  const kernels::Parallel parallel = aten_pool();
  const at::Tensor buffer =
      scratch(kernels::experts_forward_scratch({.sizes = p.sizes, .threads = parallel.threads}));
  kernels::experts_forward({.parallel = parallel,
                            .routes = p.sorted_routes.routes,
                            .sizes = p.sizes,
                            .limit = static_cast<float>(in.limit),
                            .x = p.x.const_data_ptr<float>(),
                            .weights = data_or_null(p.weights),
                            .fc1 = matrices(p.fc1),
                            .fc2 = matrices(p.fc2),
                            .y = out.y.data_ptr<float>(),
                            .projected = keep_projected ? out.projected.data_ptr<float>() : nullptr,
                            .scratch = buffer.data_ptr<float>()});
  return out;
}

ExpertGradients fused_experts_backward(const ExpertInput& in,
                                       const at::Tensor& projected,
                                       const at::Tensor& d_y,
                                       const ExpertNeeds& needed) {
  const auto make = [&](bool wanted, const at::Tensor& like, bool zero) {
    if (!wanted) return at::Tensor();
    return zero ? at::zeros(like.sizes(), in.x.options()) : at::empty(like.sizes(), in.x.options());
  };
  const bool empty = in.fc2.numel() == 0;
  ExpertGradients out{.x = make(needed.x, in.x, true),
                      .weights = make(needed.weights, in.weights, empty),
                      .fc1 = make(needed.fc1, in.fc1, empty),
                      .fc2 = make(needed.fc2, in.fc2, empty)};
  if (empty) return out;
  const Prepared p(in);
  const kernels::Parallel parallel = aten_pool();
  const at::Tensor dy = d_y.contiguous();
  const at::Tensor buffer =
      scratch(kernels::experts_backward_scratch({.sizes = p.sizes, .threads = parallel.threads}));
  kernels::experts_backward({.parallel = parallel,
                             .routes = p.sorted_routes.routes,
                             .sizes = p.sizes,
                             .limit = static_cast<float>(in.limit),
                             .x = p.x.const_data_ptr<float>(),
                             .weights = data_or_null(p.weights),
                             .projected = projected.const_data_ptr<float>(),
                             .fc1 = matrices(p.fc1),
                             .fc2 = matrices(p.fc2),
                             .d_y = dy.const_data_ptr<float>(),
                             .d_x = mutable_or_null(out.x),
                             .d_weights = mutable_or_null(out.weights),
                             .d_fc1 = mutable_or_null(out.fc1),
                             .d_fc2 = mutable_or_null(out.fc2),
                             .scratch = buffer.data_ptr<float>()});
  return out;
}

}  // namespace lethe::ops
