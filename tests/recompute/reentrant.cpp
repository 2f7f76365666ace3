#include "recompute/reentrant.h"

#include <unordered_set>

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include "lethe/base/error.h"

namespace lethe::test {
namespace {

namespace autograd = torch::autograd;

void require_explicit(const std::string& name, const Tensors& outputs, const Tensors& leaves) {
  std::unordered_set<const autograd::Node*> seen;
  std::vector<autograd::Node*> open;
  for (const at::Tensor& output : outputs) open.push_back(output.grad_fn().get());
  while (!open.empty()) {
    autograd::Node* const node = open.back();
    open.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    if (const auto* leaf = dynamic_cast<autograd::AccumulateGrad*>(node)) {
      bool found = false;
      for (const at::Tensor& t : leaves) found = found || t.is_same(leaf->variable);
      LETHE_CHECK(
          RecomputeError,
          found,
          "recompute {} [E8]: a reentrant region must get every parameter as an input, got a "
          "captured one; pass it, or use the non-reentrant engine",
          name);
    }
    for (const autograd::Edge& edge : node->next_edges()) open.push_back(edge.function.get());
  }
}

struct Reentrant : autograd::Function<Reentrant> {
  static autograd::variable_list forward(autograd::AutogradContext* context,
                                         const std::string& name,
                                         const RegionFn& fn,
                                         at::TensorList all,
                                         int64_t num_inputs) {
    context->saved_data["name"] = name;
    context->saved_data["inputs"] = num_inputs;
    functions()[context] = fn;
    context->save_for_backward(all.vec());
    return fn(all.slice(0, static_cast<size_t>(num_inputs)).vec());
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& grads) {
    const auto node = functions().extract(context);
    const auto num_inputs = static_cast<size_t>(context->saved_data["inputs"].toInt());
    Tensors inputs, leaves;
    for (const at::Tensor& t : context->get_saved_variables()) {
      const bool is_input = leaves.size() < num_inputs;
      leaves.push_back(is_input ? t.detach().requires_grad_(t.requires_grad()) : t);
      if (is_input) inputs.push_back(leaves.back());
    }
    const at::AutoGradMode grad(true);
    const Tensors outputs = node.mapped()(inputs);
    require_explicit(context->saved_data["name"].toStringRef(), outputs, leaves);
    autograd::variable_list results(2);
    for (const at::Tensor& g : autograd::grad(outputs, leaves, grads)) results.push_back(g);
    results.emplace_back();
    return results;
  }

  // A context cannot hold a function.
  static std::unordered_map<autograd::AutogradContext*, RegionFn>& functions() {
    static std::unordered_map<autograd::AutogradContext*, RegionFn> all;
    return all;
  }
};

}  // namespace

Tensors reentrant_region(const std::string& name,
                         const RegionFn& fn,
                         const Tensors& inputs,
                         const Tensors& parameters) {
  Tensors all = inputs;
  all.insert(all.end(), parameters.begin(), parameters.end());
  return Reentrant::apply(name, fn, at::TensorList(all), static_cast<int64_t>(inputs.size()));
}

}  // namespace lethe::test
