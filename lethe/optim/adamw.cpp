#include "lethe/optim/adamw.h"

#include <utility>

#include "lethe/base/error.h"
#include "lethe/core/byte_accounting.h"
#include "lethe/core/describe.h"
#include "lethe/kernels/cpu/adamw.h"

namespace lethe {

struct AdamW::Moments {
  at::Tensor m, v;  // undefined before the first update
  int64_t updates = 0;
};

namespace {

void check_gradient(const std::string& name, const at::Tensor& parameter) {
  const at::Tensor& grad = parameter.grad();
  if (!grad.defined()) return;
  LETHE_CHECK(DtypeError,
              grad.scalar_type() == parameter.scalar_type(),
              "adamw: the gradient of '{}' must be {}, got {}; cast it first",
              name,
              dtype_text(parameter),
              dtype_text(grad));
  LETHE_CHECK(ShapeError,
              grad.sizes() == parameter.sizes(),
              "adamw: the gradient of '{}' must be {}, got {}; was it assigned by hand?",
              name,
              shape_text(parameter),
              shape_text(grad));
}

template <class T>
void update(const kernels::AdamwConstants& constants,
            const at::Tensor& parameter,
            const at::Tensor& m,
            const at::Tensor& v) {
  const at::Tensor grad = parameter.grad().contiguous();
  kernels::adamw(constants,
                 parameter.numel(),
                 grad.const_data_ptr<T>(),
                 parameter.mutable_data_ptr<T>(),
                 m.mutable_data_ptr<T>(),
                 v.mutable_data_ptr<T>());
}

}  // namespace

AdamW::AdamW(std::vector<ParameterGroup> groups) : groups_(std::move(groups)) {
  check(groups_);
  size_t count = 0;
  for (const ParameterGroup& group : groups_) count += group.tensors.size();
  moments_.resize(count);
}

AdamW::~AdamW() = default;

AdamW::AdamW(AdamW&&) noexcept = default;

AdamW& AdamW::operator=(AdamW&&) noexcept = default;

void AdamW::step(double lr, double grad_scale) {
  const at::NoGradGuard no_grad;
  for (const ParameterGroup& group : groups_)
    for (size_t i = 0; i < group.tensors.size(); ++i)
      check_gradient(group.names[i], group.tensors[i]);
  size_t index = 0;
  for (const ParameterGroup& group : groups_) {
    kernels::AdamwConstants constants{.lr = lr * group.lr_scale,
                                      .beta1 = group.beta1,
                                      .beta2 = group.beta2,
                                      .eps = group.eps,
                                      .weight_decay = group.weight_decay,
                                      .grad_scale = grad_scale};
    for (const at::Tensor& parameter : group.tensors) {
      Moments& state = moments_[index++];
      if (!parameter.grad().defined()) continue;
      if (!state.m.defined()) {
        const ByteTag tag(ByteCategory::Optimizer);
        state.m = at::zeros(parameter.sizes(), parameter.scalar_type());
        state.v = at::zeros(parameter.sizes(), parameter.scalar_type());
      }
      constants.update = ++state.updates;
      parameter.scalar_type() == at::kDouble
          ? update<double>(constants, parameter, state.m, state.v)
          : update<float>(constants, parameter, state.m, state.v);
      // Written through a raw pointer: a graph that saved the old value must notice.
      parameter.unsafeGetTensorImpl()->bump_version();
    }
  }
}

void AdamW::drop_gradients() {
  for (const ParameterGroup& group : groups_)
    for (const at::Tensor& parameter : group.tensors) parameter.mutable_grad().reset();
}

int64_t AdamW::state_bytes() const {
  int64_t total = 0;
  for (const Moments& state : moments_)
    if (state.m.defined()) total += static_cast<int64_t>(state.m.nbytes() + state.v.nbytes());
  return total;
}

}  // namespace lethe
