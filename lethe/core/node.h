#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace at {
class Tensor;
}

namespace lethe {

using Tensors = std::vector<at::Tensor>;

/// What a gradient function receives: the gradients of the node's outputs and the saved tensors.
struct BackwardInput {
  const Tensors&
      grads;  // one per recorded output; undefined = none arrived there (at least one did)
  const Tensors& saved;  // in the order in which record() got them
  std::vector<bool>
      needed;  // one per input of record(); a gradient that is not needed may stay undefined
};

/// Returns one gradient per input of record(); undefined where there is none.
/// Captures only numbers and plain structs: a captured tensor would escape the recompute engine
/// (spec 3 CR1).
using BackwardFn = std::function<Tensors(const BackwardInput&)>;

/// Whether record() with these inputs records a node: grad mode is on and one requires a gradient.
[[nodiscard]] bool will_record(const Tensors& inputs);

/// Makes `outputs` the results of one autograd node with the hand-written gradient `backward`.
///
/// name     shown by profilers and in errors, e.g. "lethe::rms_norm"
/// inputs   every tensor argument in order; undefined tensors are allowed
/// outputs  differentiable results, freshly made below autograd (no views of inputs); outputs that
///          are not differentiable are simply left out
/// saved    tensors that backward reads: inputs, outputs or intermediates; each becomes a
///          SavedVariable and is unpacked exactly once (spec 3 CR1b)
/// Without grad mode, or when no input requires a gradient, the outputs stay as they are.
/// Double backward: ConfigError naming the operator.
void record(const std::string& name,
            const Tensors& inputs,
            const Tensors& outputs,
            const Tensors& saved,
            BackwardFn backward);

/// A tensor that `readers` later operators differentiate: n handles on the same storage whose
/// gradients are added as ((g0 + g1) + g2) ..., in handle order whatever the engine's order is
/// (spec 5 D1). Readers that send no gradient are skipped. Without grad the handles are `t` itself.
Tensors fork(const at::Tensor& t, int64_t readers);

/// fork with a fixed count, for structured bindings: auto [a, b] = forked<2>(x).
template <size_t N>
std::array<at::Tensor, N> forked(const at::Tensor& t);

}  // namespace lethe
