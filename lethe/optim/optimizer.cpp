#include "lethe/optim/optimizer.h"

#include <utility>

#include "lethe/base/error.h"
#include "lethe/core/byte_accounting.h"
#include "lethe/core/describe.h"
#include "lethe/kernels/cpu/adamw.h"
#include "lethe/optim/muon.h"
#include "lethe/optim/state_match_impl.h"

namespace lethe {

struct Optimizer::Slot {
  at::Tensor exp_avg, exp_avg_sq;  // AdamW
  at::Tensor momentum;             // Muon
  at::Tensor master;               // of a bfloat16 parameter
  int64_t updates = 0;

  Slot(Rule rule, const at::Tensor& parameter);

  // By the names of StateTensor, in its order; undefined where the parameter has none.
  [[nodiscard]] std::vector<std::pair<const char*, at::Tensor>> tensors() const {
    return {{"exp_avg", exp_avg},
            {"exp_avg_sq", exp_avg_sq},
            {"momentum", momentum},
            {"master", master}};
  }

  // Parameter i of the group, which has a gradient.
  void update(const ParameterGroup& group, size_t i, double lr, double grad_scale);
};

namespace {

at::ScalarType state_dtype(const at::Tensor& parameter) {
  return parameter.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

void check_gradient(const std::string& name, const at::Tensor& parameter) {
  const at::Tensor& grad = parameter.grad();
  if (!grad.defined()) return;
  LETHE_CHECK(DtypeError,
              grad.scalar_type() == state_dtype(parameter),
              "optimizer: the gradient of '{}' must be {}, got {}; cast it first",
              name,
              c10::toString(state_dtype(parameter)),
              dtype_text(grad));
  LETHE_CHECK(ShapeError,
              grad.sizes() == parameter.sizes(),
              "optimizer: the gradient of '{}' must be {}, got {}; was it assigned by hand?",
              name,
              shape_text(parameter),
              shape_text(grad));
}

template <class T>
void adamw_update(const kernels::AdamwConstants& constants,
                  const at::Tensor& grad,
                  const at::Tensor& parameter,
                  const at::Tensor& m,
                  const at::Tensor& v) {
  kernels::adamw(constants,
                 parameter.numel(),
                 grad.const_data_ptr<T>(),
                 parameter.mutable_data_ptr<T>(),
                 m.mutable_data_ptr<T>(),
                 v.mutable_data_ptr<T>());
  // Written through a raw pointer: a graph that saved the old value must notice.
  parameter.unsafeGetTensorImpl()->bump_version();
}

kernels::AdamwConstants adamw_constants(const ParameterGroup& g, double lr, double grad_scale) {
  return {.lr = lr * g.lr_scale,
          .beta1 = g.beta1,
          .beta2 = g.beta2,
          .eps = g.eps,
          .weight_decay = g.weight_decay,
          .grad_scale = grad_scale};
}

MuonConstants muon_constants(const ParameterGroup& g, double lr, double grad_scale) {
  return {.lr = lr * g.lr_scale,
          .momentum = g.momentum,
          .update_rms = g.update_rms,
          .weight_decay = g.weight_decay,
          .grad_scale = grad_scale};
}

}  // namespace

Optimizer::Slot::Slot(Rule rule, const at::Tensor& parameter) {
  const auto zeros = [&parameter] {
    return at::zeros(parameter.sizes(), parameter.options().dtype(state_dtype(parameter)));
  };
  if (rule == Rule::AdamW) {
    exp_avg = zeros();
    exp_avg_sq = zeros();
  } else {
    momentum = zeros();
  }
  if (parameter.scalar_type() == at::kBFloat16) master = parameter.to(at::kFloat);
}

void Optimizer::Slot::update(const ParameterGroup& group, size_t i, double lr, double grad_scale) {
  const at::Tensor& parameter = group.tensors[i];
  const at::Tensor grad = parameter.grad().contiguous();
  const at::Tensor& value = master.defined() ? master : parameter;
  ++updates;
  if (group.rule == Rule::Muon) {
    muon_update(muon_constants(group, lr, grad_scale), group.matrix_rows[i], grad, momentum, value);
  } else {
    kernels::AdamwConstants constants = adamw_constants(group, lr, grad_scale);
    constants.update = updates;
    value.scalar_type() == at::kDouble
        ? adamw_update<double>(constants, grad, value, exp_avg, exp_avg_sq)
        : adamw_update<float>(constants, grad, value, exp_avg, exp_avg_sq);
  }
  if (master.defined()) parameter.copy_(master);
}

Optimizer::Optimizer(std::vector<ParameterGroup> groups) : groups_(std::move(groups)) {
  check(groups_);
  const at::NoGradGuard no_grad;
  const ByteTag tag(ByteCategory::Optimizer);
  for (const ParameterGroup& group : groups_)
    for (const at::Tensor& parameter : group.tensors) slots_.emplace_back(group.rule, parameter);
}

Optimizer::~Optimizer() = default;

Optimizer::Optimizer(Optimizer&&) noexcept = default;

Optimizer& Optimizer::operator=(Optimizer&&) noexcept = default;

void Optimizer::step(double lr, double grad_scale) {
  const at::NoGradGuard no_grad;
  for (const ParameterGroup& group : groups_)
    for (size_t i = 0; i < group.tensors.size(); ++i)
      check_gradient(group.names[i], group.tensors[i]);
  size_t index = 0;
  for (const ParameterGroup& group : groups_)
    for (size_t i = 0; i < group.tensors.size(); ++i) {
      Slot& slot = slots_[index++];
      if (!group.tensors[i].grad().defined()) continue;
      slot.update(group, i, lr, grad_scale);
      group.tensors[i].mutable_grad().reset();
    }
}

void Optimizer::drop_gradients() {
  for (const ParameterGroup& group : groups_)
    for (const at::Tensor& parameter : group.tensors) parameter.mutable_grad().reset();
}

void Optimizer::copy_masters() {
  const at::NoGradGuard no_grad;
  size_t index = 0;
  for (const ParameterGroup& group : groups_)
    for (const at::Tensor& parameter : group.tensors)
      if (const at::Tensor& master = slots_[index++].master; master.defined())
        master.copy_(parameter);
}

int64_t Optimizer::state_bytes() const {
  int64_t total = 0;
  for (const StateTensor& one : state()) total += static_cast<int64_t>(one.value.nbytes());
  return total;
}

std::vector<StateTensor> Optimizer::state() const {
  std::vector<StateTensor> out;
  size_t index = 0;
  for (const ParameterGroup& group : groups_)
    for (const std::string& name : group.names)
      for (const auto& [kind, value] : slots_[index++].tensors())
        if (value.defined()) out.push_back({.parameter = name, .kind = kind, .value = value});
  return out;
}

std::vector<UpdateCount> Optimizer::update_counts() const {
  std::vector<UpdateCount> out;
  size_t index = 0;
  for (const ParameterGroup& group : groups_)
    for (const std::string& name : group.names)
      out.push_back({.parameter = name, .updates = slots_[index++].updates});
  return out;
}

void Optimizer::restore(const std::vector<StateTensor>& given,
                        const std::vector<UpdateCount>& counts) {
  const std::vector<StateTensor> own = state();
  const Tensors values = match_state(own, given);
  const std::vector<int64_t> updates = match_counts(update_counts(), counts);
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < own.size(); ++i) own[i].value.copy_(values[i]);
  size_t index = 0;
  for (const ParameterGroup& group : groups_)
    for (const at::Tensor& parameter : group.tensors) {
      Slot& slot = slots_[index];
      slot.updates = updates[index++];
      if (slot.master.defined()) parameter.copy_(slot.master);
    }
}

}  // namespace lethe
