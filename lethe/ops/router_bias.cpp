#include "lethe/ops/router_bias.h"

#include "lethe/base/error.h"
#include "lethe/ops/check_tensor.h"
#include "lethe/ops/register.h"

namespace lethe::ops {
namespace {

constexpr const char* kOp = "update_router_bias";

void check(const at::Tensor& bias, const at::Tensor& counts) {
  check_sizes(kOp, "bias", "[E]", bias, {-1}, "pass the bias of one layer");
  check_sizes(kOp, "counts", "[E]", counts, {bias.size(0)}, "pass the counts of the same layer");
  check_dtype(kOp, "bias", bias, at::kFloat, "the selection bias is fp32-kept");
  check_dtype(kOp, "counts", counts, at::kLong, "pass the sum of expert_counts");
  LETHE_CHECK(ConfigError,
              !bias.requires_grad(),
              "update_router_bias [gradient]: bias must not require a gradient, got one that does; "
              "keep it out of the "
              "optimizer's parameters");
}

void forward(const at::Tensor& bias, const at::Tensor& counts, double rate) {
  check(bias, counts);
  reference::update_router_bias(bias, counts, rate);
}

void meta(const at::Tensor& bias, const at::Tensor& counts, double) {
  check(bias, counts);
}

void autograd(const at::Tensor& bias, const at::Tensor& counts, double rate) {
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    update_router_bias(bias, counts, rate);
  }
  torch::autograd::impl::bump_version(bias);
}

LETHE_REGISTER_OP(update_router_bias,
                  "update_router_bias(Tensor(a!) bias, Tensor counts, float rate) -> ()",
                  forward,
                  meta,
                  autograd)

}  // namespace

void update_router_bias(const at::Tensor& bias, const at::Tensor& counts, double rate) {
  LETHE_OP_HANDLE(update_router_bias, void(const at::Tensor&, const at::Tensor&, double))
      .call(bias, counts, rate);
}

}  // namespace lethe::ops
