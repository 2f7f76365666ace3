#include "recompute/nets.h"

#include <optional>

#include "support/gradcheck.h"
#include <gtest/gtest.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lethe/ops/rms_norm.h"

namespace lethe::test {
namespace {

constexpr int64_t kHeads = 2;

bool is_fine(NetMode mode) {
  return mode == NetMode::Fine || mode == NetMode::FineKeep || mode == NetMode::Nested ||
         mode == NetMode::NestedKeep;
}

bool is_full(NetMode mode) {
  return mode == NetMode::Full || mode == NetMode::FullKeep || mode == NetMode::Nested ||
         mode == NetMode::NestedKeep;
}

bool releases(NetMode mode) {
  return mode != NetMode::FineKeep && mode != NetMode::FullKeep && mode != NetMode::NestedKeep;
}

struct Silu : torch::autograd::Function<Silu> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    const at::Tensor s = at::sigmoid(x);
    const at::Tensor y = x * s;
    context->save_for_backward({s, y});
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    return {grads[0] * (saved[0] + saved[1] * (1 - saved[0]))};
  }
};

at::Tensor attend(const NetBlock& block, const at::Tensor& x) {
  const at::Tensor n = ops::rms_norm(x, block.norm.to(at::kFloat), 1e-6);
  const at::Tensor qkv =
      at::mm(n, block.qkv).view({x.size(0), 3, kHeads, kNetWidth / kHeads}).permute({1, 2, 0, 3});
  at::Tensor p = at::softmax(at::bmm(qkv[0], qkv[1].transpose(1, 2)) * 0.25, -1);
  p = at::dropout(p, 0.1, true);
  return at::bmm(p, qkv[2]).permute({1, 0, 2}).reshape(x.sizes());
}

at::Tensor gated(const NetBlock& block, const at::Tensor& x) {
  return Silu::apply(at::mm(x, block.gate)) * at::mm(x, block.up);
}

struct Names {
  int layer, micro_batch;

  [[nodiscard]] std::string of(const char* part) const {
    return fmt::format("L{}.mb{}.{}", layer, micro_batch, part);
  }
};

at::Tensor region_or_call(const RegionSpec& spec,
                          bool region,
                          const std::function<at::Tensor(const at::Tensor&)>& fn,
                          const at::Tensor& x) {
  if (!region) return fn(x);
  return run_region(spec, [fn](const Tensors& in) { return Tensors{fn(in[0])}; }, {x})[0];
}

at::Tensor layer(const NetBlock& block, const at::Tensor& in, NetMode mode, Names names) {
  const bool release = releases(mode);
  at::Tensor a = region_or_call(
      {.name = names.of("attn"), .release_outputs = release},
      is_fine(mode),
      [&block](const at::Tensor& t) { return attend(block, t); },
      in);
  const at::Tensor x = in + at::mm(a, block.out);
  a.reset();
  const at::Tensor u = region_or_call(
      {.name = names.of("up"), .release_outputs = release, .random = false},
      is_fine(mode),
      [&block](const at::Tensor& t) { return gated(block, t); },
      x);
  return x + at::dropout(at::mm(u, block.down), 0.1, true) + 0.1 * in;
}

class Autocast {
 public:
  explicit Autocast(bool on) : on_(on) {
    if (!on_) return;
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::increment_nesting();
  }

  ~Autocast() {
    if (!on_) return;
    at::autocast::set_autocast_enabled(at::kCPU, false);
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  }

 private:
  bool on_;
};

}  // namespace

std::string name_of(NetMode mode) {
  constexpr const char* kNames[] = {"none",
                                    "scope only",
                                    "fine",
                                    "fine, outputs kept",
                                    "full",
                                    "full, outputs kept",
                                    "nested",
                                    "nested, outputs kept"};
  return kNames[static_cast<size_t>(mode)];
}

std::vector<at::Tensor> Net::parameters() const {
  std::vector<at::Tensor> all;
  for (const NetBlock& b : blocks)
    for (const at::Tensor& t : {b.qkv, b.out, b.gate, b.up, b.down, b.norm}) all.push_back(t);
  all.push_back(head);
  return all;
}

Net make_net(at::ScalarType dtype, int64_t layers, uint64_t seed) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  const auto parameter = [generator, dtype](at::IntArrayRef shape) {
    return (at::randn(shape, generator) * 0.2).to(dtype).requires_grad_();
  };
  constexpr int64_t D = kNetWidth, F = 2 * kNetWidth;
  Net net;
  for (int64_t i = 0; i < layers; ++i)
    net.blocks.push_back({parameter({D, 3 * D}),
                          parameter({D, D}),
                          parameter({D, F}),
                          parameter({D, F}),
                          parameter({F, D}),
                          parameter({D})});
  net.head = parameter({D, 16});
  return net;
}

at::Tensor net_forward(
    const Net& net, const at::Tensor& x, NetMode mode, Tape& tape, int micro_batch) {
  std::optional<TapeScope> scope;
  if (mode != NetMode::None) scope.emplace(tape);
  at::Tensor hidden = x;
  for (size_t i = 0; i < net.blocks.size(); ++i) {
    const NetBlock& block = net.blocks[i];
    const Names names{static_cast<int>(i), micro_batch};
    hidden = region_or_call(
        {.name = names.of("layer"), .release_outputs = releases(mode)},
        is_full(mode),
        [&block, mode, names](const at::Tensor& t) { return layer(block, t, mode, names); },
        hidden);
  }
  return hidden;
}

at::Tensor net_loss(const Net& net, const at::Tensor& hidden) {
  return at::log_softmax(at::mm(hidden, net.head).to(at::kFloat), -1).select(1, 3).mean().neg();
}

NetStep net_step(const Net& net, const at::Tensor& x, NetMode mode, const NetStepOptions& options) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(123);
  Tape tape(options.tape);
  std::vector<at::Tensor> leaves = net.parameters();
  leaves.push_back(x.detach().requires_grad_());
  NetStep step;
  at::Tensor loss;
  {
    const Autocast autocast(options.autocast);
    std::optional<TapeScope> scope;
    if (mode != NetMode::None) scope.emplace(tape);
    loss = net_loss(net, net_forward(net, leaves.back(), mode, tape));
  }
  step.loss = loss.detach();
  if (options.by_grad) {
    step.grads = torch::autograd::grad({loss}, leaves);
  } else {
    for (at::Tensor& leaf : leaves) leaf.mutable_grad().reset();
    loss.backward();
    for (at::Tensor& leaf : leaves) step.grads.push_back(std::move(leaf.mutable_grad()));
  }
  step.random = generator.get_state();
  step.regions = tape.report();
  return step;
}

void expect_same_step(const NetStep& a, const NetStep& b, const std::string& what) {
  expect_bitwise(a.loss, b.loss, what + ": loss");
  expect_bitwise(a.random, b.random, what + ": random state");
  ASSERT_EQ(a.grads.size(), b.grads.size()) << what;
  for (size_t i = 0; i < a.grads.size(); ++i)
    expect_bitwise(a.grads[i], b.grads[i], fmt::format("{}: gradient {}", what, i));
}

int64_t sum_of(const std::vector<RegionReport>& regions, int64_t RegionReport::*field) {
  int64_t sum = 0;
  for (const RegionReport& region : regions) sum += region.*field;
  return sum;
}

}  // namespace lethe::test
