// Trains an MLP twice, without and with recompute, and prints what each step keeps for backward.
// The losses agree in every digit: a replay computes the same bits. Any LibTorch code can be
// wrapped like this; nothing here is of Lethe's model.
#include <cstdio>
#include <cstring>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>

#include "lethe/core/byte_accounting.h"
#include "lethe/recompute/recompute.h"

namespace {

constexpr int64_t kRows = 256, kWidth = 128, kHidden = 512;
constexpr int kLayers = 8, kSteps = 10;

struct Layer {
  at::Tensor up, down;
};

struct Result {
  std::vector<float> losses;
  int64_t kept = 0;  // bytes that one step keeps between forward and backward
  int64_t peak = 0;
};

// The function of a region: inputs come as arguments, parameters may be captured.
at::Tensor block(const Layer& layer, const at::Tensor& x) {
  const at::Tensor h = at::dropout(at::gelu(at::mm(x, layer.up)), 0.1, /*train=*/true);
  return x + at::mm(h, layer.down);
}

void descend(at::Tensor parameter) {
  const at::NoGradGuard no_grad;
  parameter.sub_(parameter.grad(), 0.05);
  parameter.mutable_grad().reset();
}

Result train(bool recompute) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(1);
  std::vector<Layer> layers;
  for (int i = 0; i < kLayers; ++i)
    layers.push_back({(at::randn({kWidth, kHidden}) * 0.05).requires_grad_(),
                      (at::randn({kHidden, kWidth}) * 0.05).requires_grad_()});
  const at::Tensor x = at::randn({kRows, kWidth}), target = at::randn({kRows, kWidth});

  Result result;
  lethe::reset_peak();
  const int64_t before = lethe::bytes().live;
  for (int step = 0; step < kSteps; ++step) {
    at::Tensor loss;
    lethe::Tape tape;
    {
      const lethe::TapeScope scope(tape);
      at::Tensor h = x;
      for (const Layer& layer : layers) {
        const auto fn = [&layer](const at::Tensor& in) { return block(layer, in); };
        h = recompute ? tape.run("block", fn, h) : fn(h);
      }
      loss = (h - target).pow(2).mean();
    }
    result.kept = lethe::bytes().live - before;
    loss.backward();
    result.losses.push_back(loss.item<float>());
    for (const Layer& layer : layers) {
      descend(layer.up);
      descend(layer.down);
    }
  }
  result.peak = lethe::bytes().peak - before;
  return result;
}

}  // namespace

int main() {
  lethe::install_byte_accounting();
  const Result plain = train(false), ours = train(true);
  std::printf("                 kept for backward      peak   loss of step %d\n", kSteps);
  for (const auto& [name, result] : {std::pair{"without", &plain}, std::pair{"recompute", &ours}})
    std::printf("%-12s %17lld B %9lld B   %.9g\n",
                name,
                static_cast<long long>(result->kept),
                static_cast<long long>(result->peak),
                static_cast<double>(result->losses.back()));
  const bool same =
      std::memcmp(plain.losses.data(), ours.losses.data(), sizeof(float) * plain.losses.size()) ==
      0;
  std::printf("losses of %d steps: %s\n", kSteps, same ? "equal in every bit" : "DIFFERENT");
  return same && ours.kept < plain.kept && ours.peak < plain.peak ? 0 : 1;
}
