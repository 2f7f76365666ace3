#include "offload/swap_chain.h"

#include <optional>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tanh.h>
#include <torch/csrc/autograd/autograd.h>

#include "lethe/recompute/recompute.h"

namespace lethe::test {

std::vector<at::Tensor> SwapChain::parameters() const {
  std::vector<at::Tensor> all = first;
  all.insert(all.end(), second.begin(), second.end());
  return all;
}

SwapChain make_swap_chain(int64_t layers, int64_t width, at::ScalarType dtype) {
  at::Generator generator = at::detail::createCPUGenerator(17);
  const auto parameter = [&] {
    return (at::randn({width, width}, generator) * 0.1).to(dtype).requires_grad_();
  };
  SwapChain chain;
  for (int64_t i = 0; i < layers; ++i) {
    chain.first.push_back(parameter());
    chain.second.push_back(parameter());
  }
  return chain;
}

at::Tensor chain_loss(const SwapChain& chain,
                      const at::Tensor& x,
                      LayerInputSwap* swap,
                      Tape* tape) {
  std::optional<TapeScope> scope;
  if (tape != nullptr) scope.emplace(*tape);
  at::Tensor hidden = x * 2;
  for (int64_t i = 0; i < chain.num_layers(); ++i) {
    const auto layer = [w1 = chain.first[static_cast<size_t>(i)],
                        w2 = chain.second[static_cast<size_t>(i)]](const at::Tensor& in) {
      return in + at::mm(at::tanh(at::mm(in, w1)), w2) + in * in / 16;
    };
    const at::Tensor input = hidden;
    hidden = tape != nullptr ? tape->run(fmt::format("L{}", i), layer, input) : layer(input);
    if (swap == nullptr) continue;
    swap->offer(i, input);
    swap->trigger_at(i, hidden);
  }
  return (hidden * hidden).mean();
}

std::vector<at::Tensor> chain_gradients(const SwapChain& chain,
                                        const at::Tensor& x,
                                        const at::Tensor& loss) {
  std::vector<at::Tensor> leaves = chain.parameters();
  leaves.push_back(x);
  return torch::autograd::grad({loss}, leaves);
}

}  // namespace lethe::test
