#include "lethe/core/node.h"

#include <algorithm>

#include <torch/csrc/autograd/functions/utils.h>

#include "lethe/base/error.h"
#include "lethe/core/byte_accounting.h"

namespace lethe {
namespace {

using torch::autograd::SavedVariable;

class OpNode final : public torch::autograd::Node {
 public:
  OpNode(std::string op, BackwardFn backward)
      : op_(std::move(op)), backward_(std::move(backward)) {}

  std::string name() const override { return op_; }

  void save(const at::Tensor& t, bool is_output) {
    recount_saved(t);
    saved_.emplace_back(t, is_output);
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (SavedVariable& s : saved_) s.reset_data();
    released_ = true;
  }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    LETHE_CHECK(ConfigError,
                !at::GradMode::is_enabled(),
                "{}: double backward is not defined; call backward without create_graph",
                op_);
    LETHE_CHECK(ConfigError,
                !released_,
                "{}: backward ran twice over one graph; pass retain_graph, or run forward again",
                op_);
    Tensors saved;
    saved.reserve(saved_.size());
    for (SavedVariable& s : saved_) saved.push_back(s.unpack(shared_from_this()));
    std::vector<bool> needed(num_outputs());
    for (size_t i = 0; i < needed.size(); ++i) needed[i] = task_should_compute_output(i);
    const bool any =
        std::any_of(grads.begin(), grads.end(), [](const at::Tensor& g) { return g.defined(); });
    if (!any) return torch::autograd::variable_list(needed.size());
    Tensors out = backward_({grads, saved, needed});
    if (out.size() != needed.size())
      fail_internal(fmt::format("{}: {} gradients for {} inputs", op_, out.size(), needed.size()));
    return out;
  }

 private:
  std::string op_;
  BackwardFn backward_;
  std::vector<SavedVariable> saved_;
  bool released_ = false;
};

Tensors add_in_handle_order(const BackwardInput& in) {
  at::Tensor sum;
  for (const at::Tensor& g : in.grads)
    if (g.defined()) sum = sum.defined() ? sum + g : g;
  return {sum};
}

// The engine would round a gradient to the type of a bfloat16 handle before it is added. A
// template, so that a LibTorch without the function never sees the call.
template <class N>
void take_any_gradient_dtype(N& node, size_t output) {
  if constexpr (requires { node.mutable_input_metadata(output).set_grad_dtype(std::nullopt); })
    node.mutable_input_metadata(output).set_grad_dtype(std::nullopt);
}

}  // namespace

bool will_record(const Tensors& inputs) {
  if (!at::GradMode::is_enabled()) return false;
  for (const at::Tensor& t : inputs)
    if (t.defined() && t.requires_grad()) return true;
  return false;
}

void record(const std::string& name,
            const Tensors& inputs,
            const Tensors& outputs,
            const Tensors& saved,
            BackwardFn backward) {
  if (!will_record(inputs)) return;
  auto node = std::make_shared<OpNode>(name, std::move(backward));
  torch::autograd::edge_list edges;
  edges.reserve(inputs.size());
  for (const at::Tensor& t : inputs)
    edges.push_back(t.defined() ? torch::autograd::impl::gradient_edge(t)
                                : torch::autograd::Edge());
  node->set_next_edges(std::move(edges));
  for (const at::Tensor& t : outputs) torch::autograd::set_history(t, node);
  for (const at::Tensor& t : saved) {
    bool is_output = false;
    for (const at::Tensor& o : outputs) is_output = is_output || o.is_same(t);
    node->save(t, is_output);
  }
}

Tensors fork(const at::Tensor& t, int64_t readers) {
  if (!at::GradMode::is_enabled() || !t.requires_grad())
    return Tensors(static_cast<size_t>(readers), t);
  Tensors handles;
  for (int64_t i = 0; i < readers; ++i) handles.push_back(t.detach());
  record("lethe::fork", {t}, handles, {}, add_in_handle_order);
  if (t.scalar_type() == at::kBFloat16)
    for (const at::Tensor& handle : handles) {
      const auto edge = torch::autograd::impl::gradient_edge(handle);
      take_any_gradient_dtype(*edge.function, edge.input_nr);
    }
  return handles;
}

template <size_t N>
std::array<at::Tensor, N> forked(const at::Tensor& t) {
  Tensors handles = fork(t, static_cast<int64_t>(N));
  std::array<at::Tensor, N> out;
  for (size_t i = 0; i < N; ++i) out[i] = std::move(handles[i]);
  return out;
}

template std::array<at::Tensor, 2> forked<2>(const at::Tensor&);
template std::array<at::Tensor, 3> forked<3>(const at::Tensor&);
template std::array<at::Tensor, 4> forked<4>(const at::Tensor&);

}  // namespace lethe
