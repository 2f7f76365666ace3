#include <unordered_set>

#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include "lethe/base/error.h"
#include "lethe/core/describe.h"
#include "lethe/recompute/region_impl.h"

// The parameters that a region reads. Those that it saves are compared where a replay saves them
// again; one that is only added is saved by nobody, and what a replay makes of it would be wrong.
namespace lethe {

namespace autograd = torch::autograd;

// `first_node`: the number of the first node that this thread made in the region. The walk ends at
// the inputs, and at whatever else is older.
void Region::note_parameters(const Tensors& out, const Tensors& inputs, uint64_t first_node) {
  const uint64_t thread = at::RecordFunction::currentThreadId();
  std::unordered_set<const autograd::Node*> seen;
  std::unordered_set<const c10::StorageImpl*> given;
  for (const at::Tensor& t : inputs) {
    if (!t.defined()) continue;
    given.insert(storage_of(t));
    seen.insert(t.grad_fn().get());
  }
  std::vector<autograd::Node*> open;
  const auto visit = [&](autograd::Node* node) {
    if (node != nullptr && seen.insert(node).second) open.push_back(node);
  };
  for (const at::Tensor& t : out) visit(t.grad_fn().get());
  while (!open.empty()) {
    autograd::Node* const node = open.back();
    open.pop_back();
    if (const auto* leaf = dynamic_cast<const autograd::AccumulateGrad*>(node)) {
      const at::Tensor& t = leaf->variable;
      if (!given.contains(storage_of(t)))
        parameters_.push_back({t, weak_storage_of(t), version_of(t)});
      continue;
    }
    if (node->thread_id() == thread && node->sequence_nr() < first_node) continue;
    for (const autograd::Edge& edge : node->next_edges()) visit(edge.function.get());
  }
}

void Region::require_parameters() const {
  for (const Parameter& parameter : parameters_) {
    const at::Tensor& t = parameter.tensor;
    LETHE_CHECK(RecomputeError,
                storage_of(t) == parameter.storage._unsafe_get_target(),
                "recompute {} [E10]: a parameter that the region reads must be that of forward, "
                "got another storage in the one of shape {}; change parameters after backward only",
                name(),
                shape_text(t));
    LETHE_CHECK(RecomputeError,
                version_of(t) == parameter.version,
                "recompute {} [E10]: a parameter that the region reads must stay unchanged between "
                "forward and replay, got version {} where forward saw {} in the one of shape {}; "
                "change parameters after backward only",
                name(),
                version_of(t),
                parameter.version,
                shape_text(t));
  }
}

}  // namespace lethe
