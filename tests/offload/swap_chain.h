#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "lethe/offload/layer_input_swap.h"

namespace lethe {
class Tape;
}

namespace lethe::test {

/// A chain of layers x + tanh(x w1) w2 + x * x / 16, whose inputs are read by three nodes of
/// backward.
struct SwapChain {
  std::vector<at::Tensor> first, second;  // by layer
  [[nodiscard]] std::vector<at::Tensor> parameters() const;

  [[nodiscard]] int64_t num_layers() const { return static_cast<int64_t>(first.size()); }
};

SwapChain make_swap_chain(int64_t layers, int64_t width, at::ScalarType dtype);

/// The loss over x [T, width]. Where there is a record, every layer takes part in it with the two
/// lines of layer_input_swap.h; where there is a tape, every layer is a region whose output stays.
at::Tensor chain_loss(const SwapChain& chain,
                      const at::Tensor& x,
                      LayerInputSwap* swap,
                      Tape* tape = nullptr);

/// Gradients of the parameters and, last, of x.
std::vector<at::Tensor> chain_gradients(const SwapChain& chain,
                                        const at::Tensor& x,
                                        const at::Tensor& loss);

}  // namespace lethe::test
