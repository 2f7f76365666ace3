#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>

#include "support/gradcheck.h"
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <torch/csrc/autograd/autograd.h>

#include "lethe/base/random.h"
#include "lethe/ops/rms_norm.h"
#include "lethe/recompute/kept_call.h"
#include "lethe/recompute/recompute.h"

// Random nets, regions and save sets (spec 3 8.5): whatever is recomputed, every bit is that of the
// run without a tape.
namespace lethe::test {
namespace {

constexpr int64_t kSide = 4;  // every value is a matrix [kSide, kSide]
constexpr size_t kInputs = 2;
constexpr size_t kNever = std::numeric_limits<size_t>::max();

enum class Kind : uint8_t {
  Input,
  Mul,
  Add,
  Product,
  Weight,
  Relu,
  Exp,
  Softmax,
  Sum,
  Norm,
  Cat,
  Transpose,
  Reshape,
  Dropout,
};
constexpr std::array<const char*, 14> kNames{"input",
                                             "mul",
                                             "add",
                                             "product",
                                             "weight",
                                             "relu",
                                             "exp",
                                             "softmax",
                                             "sum",
                                             "norm",
                                             "cat",
                                             "transpose",
                                             "reshape",
                                             "dropout"};

bool has_two_inputs(Kind kind) {
  return kind == Kind::Mul || kind == Kind::Add || kind == Kind::Product || kind == Kind::Sum ||
         kind == Kind::Cat;
}

// Calls that return a view of their input or draw random numbers are refused (R6.21, R6.24).
bool can_be_kept(Kind kind) {
  return kind != Kind::Transpose && kind != Kind::Reshape && kind != Kind::Dropout;
}

/// Makes the value of its own number.
struct Step {
  Kind kind{};
  std::vector<size_t> reads;
  at::Tensor leaf;  // of Input, Weight, Norm
};

at::Tensor result_of(const Step& step, const Tensors& in) {
  switch (step.kind) {
    case Kind::Input:
      return step.leaf;
    case Kind::Mul:
      return in[0] * in[1];
    case Kind::Add:
      return in[0] + in[1] * 0.5;
    case Kind::Product:
      return in[0].mm(in[1]) * 0.25;
    case Kind::Weight:
      return in[0].mm(step.leaf);
    case Kind::Relu:
      return in[0].relu();
    case Kind::Exp:
      return (in[0] * 0.1).exp();
    case Kind::Softmax:
      return at::softmax(in[0], -1);
    case Kind::Sum:
      return in[0] * (in[1].sum(-1, /*keepdim=*/true) * 0.25);
    case Kind::Norm:
      return ops::rms_norm(in[0], step.leaf, 1e-6);
    case Kind::Cat:
      return at::cat({in[0], in[1]}, 0).narrow(0, 1, kSide);
    case Kind::Transpose:
      return in[0].t();
    case Kind::Reshape:
      return in[0].reshape({kSide * kSide}).view({kSide, kSide});
    case Kind::Dropout:
      return at::dropout(in[0], 0.25, true);
  }
  return {};
}

/// Steps [begin, end) as a region, some of them in regions inside of it.
struct Block {
  size_t begin = 0, end = 0;
  RegionSpec spec;
  std::vector<Block> inner;
};

std::string text_of(const Block& block, const std::string& indent) {
  std::vector<std::string> kept;
  for (const KeptName& name : block.spec.keep) kept.push_back(name.name);
  std::string text = fmt::format("{}region of v{} to v{}: {}{}{}keeps [{}]\n",
                                 indent,
                                 block.begin,
                                 block.end - 1,
                                 block.spec.release_outputs ? "releases, " : "",
                                 block.spec.random ? "random, " : "",
                                 block.spec.stop == EarlyStop::Off ? "runs to the end, " : "",
                                 fmt::join(kept, ", "));
  for (const Block& inner : block.inner) text += text_of(inner, indent + "  ");
  return text;
}

/// About ten operators, and which of them are regions. Outlives the graphs of its runs.
class RandomNet {
 public:
  explicit RandomNet(uint64_t seed) : random_(seed) {
    make_steps(seed);
    last_read_.assign(steps_.size(), kNever);
    for (size_t i = 0; i < steps_.size(); ++i)
      for (const size_t j : steps_[i].reads) last_read_[j] = i;
    for (size_t begin = kInputs; begin < steps_.size();) {
      const size_t end = begin + 1 + below(std::min<size_t>(5, steps_.size() - begin));
      if (below(4) > 0) blocks_.push_back(make_block(begin, end, 0));
      begin = end;
    }
  }

  RandomNet(const RandomNet&) = delete;
  RandomNet& operator=(const RandomNet&) = delete;

  [[nodiscard]] Tensors leaves() const {
    Tensors all;
    for (const Step& step : steps_)
      if (step.leaf.defined()) all.push_back(step.leaf);
    return all;
  }

  [[nodiscard]] const std::vector<Block>& blocks() const { return blocks_; }

  [[nodiscard]] bool draws() const { return draws(0, steps_.size()); }

  /// The loss, and copies of the values that nobody reads.
  at::Tensor run(bool recompute, Tensors& results) const {
    static const std::vector<Block> kNone;
    Tensors values(steps_.size());
    for (size_t i = 0; i < kInputs; ++i) values[i] = steps_[i].leaf;
    evaluate(kInputs, steps_.size(), recompute ? blocks_ : kNone, values);
    at::Tensor loss;
    for (size_t i = 0; i < steps_.size(); ++i) {
      if (last_read_[i] != kNever) continue;
      results.push_back(values[i].detach().clone());
      const at::Tensor part = values[i].sin().sum();
      loss = loss.defined() ? loss + part : part;
    }
    return loss;
  }

  [[nodiscard]] std::string text() const {
    std::string lines;
    for (size_t i = 0; i < steps_.size(); ++i)
      lines += fmt::format("v{} = {}(v{})\n",
                           i,
                           kNames[static_cast<size_t>(steps_[i].kind)],
                           fmt::join(steps_[i].reads, ", v"));
    for (const Block& block : blocks_) lines += text_of(block, "");
    return lines;
  }

 private:
  size_t below(size_t bound) { return static_cast<size_t>(random_.uniform_below(bound)); }

  void make_steps(uint64_t seed) {
    at::Generator generator = at::detail::createCPUGenerator(seed);
    const at::TensorOptions options =
        at::TensorOptions().dtype(seed % 2 == 0 ? at::kFloat : at::kDouble);
    const auto leaf = [&](at::IntArrayRef shape) {
      return (at::randn(shape, generator, options) * 0.5).requires_grad_();
    };
    for (size_t i = 0; i < kInputs; ++i) steps_.push_back({Kind::Input, {}, leaf({kSide, kSide})});
    const size_t num_steps = kInputs + 8 + below(5);
    while (steps_.size() < num_steps) {
      Step step;
      step.kind = static_cast<Kind>(1 + below(kNames.size() - 1));
      const size_t num_reads = has_two_inputs(step.kind) ? 2 : 1;
      for (size_t k = 0; k < num_reads; ++k)
        step.reads.push_back(steps_.size() - 1 - below(std::min<size_t>(4, steps_.size())));
      if (step.kind == Kind::Weight) step.leaf = leaf({kSide, kSide});
      if (step.kind == Kind::Norm) step.leaf = leaf({kSide});
      steps_.push_back(std::move(step));
    }
  }

  [[nodiscard]] bool draws(size_t begin, size_t end) const {
    for (size_t i = begin; i < end; ++i)
      if (steps_[i].kind == Kind::Dropout) return true;
    return false;
  }

  Block make_block(size_t begin, size_t end, int depth) {
    Block block{.begin = begin, .end = end, .spec = {}, .inner = {}};
    block.spec.name = fmt::format("{}.{}", depth, begin);
    block.spec.release_outputs = below(2) == 0;
    block.spec.random = draws(begin, end) || below(2) == 0;
    block.spec.stop = below(4) == 0 ? EarlyStop::Off : EarlyStop::On;
    // Nested regions keep nothing (R6.17).
    for (size_t i = begin; i < end && depth == 0; ++i)
      if (can_be_kept(steps_[i].kind) && below(4) == 0) block.spec.keep.push_back({call_name(i)});
    if (depth < 2 && end - begin > 1 && below(2) == 0) {
      const size_t first = begin + below(end - begin);
      const size_t last = first + 1 + below(end - first);
      block.inner.push_back(make_block(first, last, depth + 1));
    }
    return block;
  }

  static std::string call_name(size_t step) { return fmt::format("v{}", step); }

  /// Values live until their last reader has run.
  void evaluate(size_t begin, size_t end, const std::vector<Block>& blocks, Tensors& values) const {
    auto block = blocks.begin();
    for (size_t i = begin; i < end;) {
      if (block != blocks.end() && block->begin == i) {
        run_block(*block, values);
        i = block->end;
        ++block;
      } else {
        values[i] = call(i, values);
        ++i;
      }
      for (size_t j = 0; j < i; ++j)
        if (last_read_[j] < i) values[j].reset();
    }
  }

  [[nodiscard]] at::Tensor call(size_t i, const Tensors& values) const {
    const Step& step = steps_[i];
    Tensors inputs;
    for (const size_t j : step.reads) inputs.push_back(values[j]);
    const RegionFn fn = [&step](const Tensors& in) { return Tensors{result_of(step, in)}; };
    return op_call(call_name(i), fn, inputs)[0];
  }

  void run_block(const Block& block, Tensors& values) const {
    std::vector<size_t> reads, makes;
    for (size_t j = 0; j < block.begin; ++j)
      if (is_read_in(block, j)) reads.push_back(j);
    for (size_t j = block.begin; j < block.end; ++j)
      if (last_read_[j] >= block.end) makes.push_back(j);
    Tensors inputs;
    for (const size_t j : reads) inputs.push_back(values[j]);
    const RegionFn fn = [this, &block, reads, makes](const Tensors& in) {
      Tensors inside(steps_.size()), out;
      for (size_t k = 0; k < reads.size(); ++k) inside[reads[k]] = in[k];
      evaluate(block.begin, block.end, block.inner, inside);
      for (const size_t j : makes) out.push_back(inside[j]);
      return out;
    };
    const Tensors out = run_region(block.spec, fn, inputs);
    for (size_t k = 0; k < makes.size(); ++k) values[makes[k]] = out[k];
  }

  [[nodiscard]] bool is_read_in(const Block& block, size_t value) const {
    for (size_t i = block.begin; i < block.end; ++i)
      for (const size_t j : steps_[i].reads)
        if (j == value) return true;
    return false;
  }

  Random random_;
  std::vector<Step> steps_;        // step i makes value i
  std::vector<size_t> last_read_;  // by value; kNever: it enters the loss
  std::vector<Block> blocks_;
};

struct NetRun {
  Tensors results, gradients;
  at::Tensor random;  // state of the generator afterwards
  int64_t released = 0, replays = 0, kept_calls = 0;
};

NetRun run_net(const RandomNet& net, bool recompute, bool checked = false) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(5);
  Tape tape({.checked = checked});
  NetRun run;
  at::Tensor loss;
  {
    std::optional<TapeScope> scope;
    if (recompute) scope.emplace(tape);
    loss = net.run(recompute, run.results);
  }
  for (const RegionReport& region : tape.report()) run.released += region.released;
  run.gradients = torch::autograd::grad({loss}, net.leaves());
  run.random = generator.get_state();
  for (const RegionReport& region : tape.report()) {
    run.replays += region.replays;
    for (const KeptReport& kept : region.kept) run.kept_calls += kept.calls;
  }
  return run;
}

void expect_same_run(const NetRun& a, const NetRun& b) {
  ASSERT_EQ(a.results.size(), b.results.size());
  for (size_t i = 0; i < a.results.size(); ++i)
    expect_bitwise(a.results[i], b.results[i], fmt::format("result {}", i));
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (size_t i = 0; i < a.gradients.size(); ++i)
    expect_bitwise(a.gradients[i], b.gradients[i], fmt::format("gradient of leaf {}", i));
  expect_bitwise(a.random, b.random, "random state");
}

/// How many nets have what makes a replay hard.
struct Coverage {
  int64_t nested = 0, random = 0, kept = 0, released = 0, replayed = 0;

  void add(const RandomNet& net, const NetRun& run) {
    const auto& blocks = net.blocks();
    nested +=
        std::any_of(blocks.begin(), blocks.end(), [](const Block& b) { return !b.inner.empty(); });
    random += net.draws();
    kept += run.kept_calls > 0;
    released += run.released > 0;
    replayed += run.replays > 0;
  }
};

TEST(RandomNets, AnyRegionsAndSaveSetsKeepEveryBit) {
  Coverage covered;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const RandomNet net(seed);
    SCOPED_TRACE(fmt::format("seed {}:\n{}", seed, net.text()));
    try {
      const NetRun plain = run_net(net, /*recompute=*/false);
      const NetRun run = run_net(net, /*recompute=*/true, /*checked=*/seed % 3 == 2);
      expect_same_run(run, plain);
      covered.add(net, run);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    EXPECT_EQ(recompute_objects().regions, 0);
    EXPECT_EQ(recompute_objects().saved, 0);
    if (testing::Test::HasFailure()) return;  // the first is enough to look at
  }
  EXPECT_GE(covered.nested, 60);
  EXPECT_GE(covered.random, 60);
  EXPECT_GE(covered.kept, 60);
  EXPECT_GE(covered.released, 120);
  EXPECT_GE(covered.replayed, 120);
}

}  // namespace
}  // namespace lethe::test
