#include <any>
#include <array>
#include <optional>

#include "recompute/nets.h"
#include "support/expect_error.h"
#include "support/gradcheck.h"
#include "support/tensors.h"
#include <gtest/gtest.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/topk.h>

#include "lethe/base/error.h"
#include "lethe/core/byte_accounting.h"
#include "lethe/core/node.h"
#include "lethe/recompute/recompute.h"

// What a region is allowed to return, to save and to read (spec 3 1.3, 1.7, 8.4).
namespace lethe {
namespace {

using test::random_leaf;
using RegionRunner = std::function<Tensors(const RegionSpec&, const RegionFn&, const Tensors&)>;

Tensors grad_of(const at::Tensor& loss, const Tensors& leaves) {
  return torch::autograd::grad({loss}, leaves);
}

// The same computation without and with a region: gradients must agree in every bit.
template <class F>
void expect_same_gradients(const F& loss_of, const Tensors& leaves, TapeOptions options = {}) {
  const RegionRunner plain = [](const RegionSpec&, const RegionFn& fn, const Tensors& in) {
    return fn(in);
  };
  const Tensors expected = grad_of(loss_of(plain), leaves);
  Tape tape(options);
  at::Tensor loss;
  {
    const TapeScope scope(tape);
    loss = loss_of([&](const RegionSpec& spec, const RegionFn& fn, const Tensors& in) {
      return tape.run(spec, fn, in);
    });
  }
  const Tensors got = grad_of(loss, leaves);
  for (size_t i = 0; i < leaves.size(); ++i)
    test::expect_bitwise(got[i], expected[i], fmt::format("gradient {}", i));
}

TEST(Region, SeveralOutputsSomeWithoutGradient) {
  const at::Tensor x = random_leaf({6, 8});
  expect_same_gradients(
      [&](const RegionRunner& run) {
        const Tensors out = run({.name = "top", .release_outputs = true},
                                [](const Tensors& in) {
                                  auto [values, indices] = at::topk(in[0].exp(), 3, -1);
                                  return Tensors{values, indices, in[0].sin()};
                                },
                                {x});
        EXPECT_FALSE(out[1].requires_grad());
        return (out[0].gather(1, out[1] % 3) * out[0]).sum() + (out[2] * out[2]).sum();
      },
      {x});
}

TEST(Region, AnOutputWithoutGradientIsFreedAndComesBack) {
  install_byte_accounting();
  const at::Tensor x = random_leaf({64, 64});
  Tape tape;
  const TapeScope scope(tape);
  at::Tensor loss;
  const int64_t before = bytes().live;
  {
    const Tensors out = tape.run(
        {.name = "sort", .release_outputs = true, .random = false},
        [](const Tensors& in) { return Tensors{in[0].detach().argsort(int64_t{-1}, false)}; },
        {x});
    loss = x.gather(1, out[0]).pow(2).sum();
  }
  // gather saves the indices, pow what was gathered.
  EXPECT_EQ(bytes().live - before, 64 * 64 * 8 + 8);
  loss.backward();
  test::expect_bitwise(x.grad(), 2 * x.detach(), "gradient");
}

TEST(Region, OutputsThatAliasInputsParametersOrEachOtherAreNotFreedWrongly) {
  const at::Tensor x = random_leaf({4, 4}), w = random_leaf({4, 4});
  Tape tape;
  const TapeScope scope(tape);
  const at::Tensor h = x * 2;
  const Tensors out = tape.run(test::released("aliases"),
                               [&](const Tensors& in) {
                                 const at::Tensor e = in[0].exp();
                                 return Tensors{in[0].to(at::kDouble), w, e, e.view({16})};
                               },
                               {h});
  EXPECT_EQ(tape.release("aliases", 0), 0);
  EXPECT_EQ(tape.release("aliases", 1), 0);
  EXPECT_EQ(
      tape.report()[0].retained_outputs,
      (std::vector<std::string>{"out0: shares the storage of an input", "out1: is a parameter"}));
  // One storage: freed when both outputs are, and filled again once.
  const at::Tensor kept = out[2].detach().clone();
  const at::Tensor loss = (out[2] * out[3].view({4, 4})).sum();
  EXPECT_EQ(tape.release("aliases", 2), 0);
  EXPECT_EQ(tape.release("aliases", 3), 16 * 8);
  loss.backward();
  test::expect_bitwise(out[2].detach(), kept, "first");
  test::expect_bitwise(out[3].detach().view({4, 4}), kept, "second");
  EXPECT_EQ(tape.report()[0].replays, 1);
}

TEST(Region, ViewsOfAnOutputAndViewOutputsComeBackAsTheyWere) {
  const at::Tensor x = random_leaf({6, 8});
  expect_same_gradients(
      [&](const RegionRunner& run) {
        const Tensors out = run({.name = "views", .release_outputs = true},
                                [](const Tensors& in) {
                                  const at::Tensor e = in[0].exp();
                                  return Tensors{e.narrow(1, 2, 4), e.select(0, 1)};
                                },
                                {x});
        const at::Tensor late = out[0].t().reshape({2, 12}).narrow(1, 1, 5);
        return (late * late).sum() + (out[1] * out[1]).sum() + out[0].pow(3).sum();
      },
      {x});
}

TEST(Region, AViewOutputDoesNotKeepWhatItIsAViewOf) {
  install_byte_accounting();
  const at::Tensor x = random_leaf({64, 64});
  Tape tape;
  const TapeScope scope(tape);
  const int64_t before = bytes().live;
  at::Tensor loss;
  {
    const at::Tensor y =
        tape.run({.name = "column", .release_outputs = true, .random = false},
                 [](const Tensors& in) { return Tensors{in[0].exp().select(1, 0)}; },
                 {x})[0];
    loss = (y * y).sum();
  }
  EXPECT_EQ(bytes().live - before, 8);
}

TEST(Region, SlotsAreNumberedAlikeForLeafAndNonLeafInputs) {
  const at::Tensor x = random_leaf({4, 4}), w = random_leaf({4, 4});
  for (const bool leaf : {true, false})
    expect_same_gradients(
        [&](const RegionRunner& run) {
          const at::Tensor in = leaf ? x : x * 1;
          // The inner region reads its enclosing region's input without being given it.
          const RegionFn outer = [&](const Tensors& o) {
            const at::Tensor seen = o[0];
            const at::Tensor inner =
                run_region("inner",
                           [seen, w](const Tensors& i) {
                             return Tensors{at::mm(i[0].exp(), w) * seen + at::tanh(seen * i[0])};
                           },
                           {o[0] * 3})[0];
            return Tensors{at::mm(inner, w) * o[0]};
          };
          const at::Tensor y = run({.name = "outer", .release_outputs = true}, outer, {in})[0];
          return (y * y).sum();
        },
        {x, w});
}

TEST(Region, UndefinedInputsArriveUndefined) {
  const at::Tensor x = random_leaf({4});
  expect_same_gradients(
      [&](const RegionRunner& run) {
        return run({.name = "optional", .release_outputs = true},
                   [](const Tensors& in) {
                     EXPECT_FALSE(in[1].defined());
                     return Tensors{in[0].exp().pow(2)};
                   },
                   {x, at::Tensor()})[0]
            .sum();
      },
      {x});
}

TEST(Region, ABackwardInsideOfARegionIsLegal) {
  const at::Tensor x = random_leaf({5, 5});
  expect_same_gradients(
      [&](const RegionRunner& run) {
        return run({.name = "inner backward", .release_outputs = true},
                   [](const Tensors& in) {
                     const at::Tensor y = in[0].exp() * in[0].sin();
                     const at::Tensor slope =
                         torch::autograd::grad({y.sum()}, {in[0]}, {}, /*retain=*/true)[0];
                     return Tensors{(y * slope).tanh()};
                   },
                   {x})[0]
            .pow(2)
            .sum();
      },
      {x});
}

TEST(Region, SideEffectsRunOnce) {
  const at::Tensor x = random_leaf({4});
  int every = 0, only_once = 0;
  Tape tape;
  const RegionFn inner = [&](const Tensors& in) {
    ++every;
    once([&] { ++only_once; });
    return Tensors{in[0].exp().tanh()};
  };
  const at::Tensor y = tape.run(
      test::released("outer"),
      [inner](const Tensors& in) { return Tensors{run_region("inner", inner, in)[0].sin()}; },
      {x})[0];
  y.sum().backward();
  EXPECT_EQ(every, 3);  // forward, the replay of the outer region, its own
  EXPECT_EQ(only_once, 1);
}

TEST(Region, ChoicesAreRecordedAndNotMadeAgain) {
  const at::Tensor x = random_leaf({8, 8});
  int choices = 0;
  const auto fn = [&choices](const Tensors& in) {
    const at::Tensor index = recorded([&] {
      ++choices;
      // A tie that another run may break in another way.
      return Tensors{at::ones_like(in[0]).argsort(int64_t{-1}, false) + choices - 1};
    })[0];
    return Tensors{in[0].exp().gather(1, index % 8).pow(2)};
  };
  for (const bool nested : {false, true}) {
    choices = 0;
    Tape tape({.checked = true});
    const TapeScope scope(tape);
    const RegionFn outer = [&](const Tensors& in) {
      return Tensors{run_region("inner", fn, in)[0].sin()};
    };
    const at::Tensor y = tape.run(test::released("choose"), nested ? outer : RegionFn(fn), {x})[0];
    const at::Tensor gradient = grad_of(y.sum(), {x})[0];
    EXPECT_EQ(choices, 1);
    choices = 0;
    const at::Tensor plain = (nested ? outer({x}) : fn({x}))[0];
    test::expect_bitwise(gradient, grad_of(plain.sum(), {x})[0], "gradient");
  }
}

TEST(Region, AnotherGeneratorIsReplayedWhenItIsAContextPart) {
  const at::Tensor x = random_leaf({32});
  at::Generator generator = at::detail::createCPUGenerator(1);
  const auto fn = [&](const at::Tensor& t) {
    return (t * t) * at::bernoulli(at::ones_like(t) * 0.5, generator);
  };
  const auto gradient = [&](bool region) {
    generator.set_current_seed(9);
    Tape tape;
    const at::Tensor y = region ? tape.run(test::released("noise"), fn, x) : fn(x);
    return grad_of(y.pow(2).sum(), {x})[0];
  };
  const at::Tensor plain = gradient(false);
  EXPECT_FALSE(at::equal(gradient(true), plain));
  const ContextPart part(
      [&] { return std::any(generator.get_state()); },
      [&](const std::any& state) { generator.set_state(std::any_cast<const at::Tensor&>(state)); });
  test::expect_bitwise(gradient(true), plain, "gradient");
}

TEST(Region, ContextOfForwardIsInstalledForTheReplayAndUndone) {
  const at::Tensor x = random_leaf({4});
  at::globalContext().setFloat32MatmulPrecision("high");
  std::vector<at::Float32MatmulPrecision> seen;
  Tape tape;
  const at::Tensor loss = tape.run(
                                  test::released("context"),
                                  [&](const at::Tensor& t) {
                                    seen.push_back(at::globalContext().float32MatmulPrecision());
                                    EXPECT_TRUE(at::GradMode::is_enabled());
                                    return t.exp().tanh();
                                  },
                                  x)
                              .sum();
  at::globalContext().setFloat32MatmulPrecision("highest");
  loss.backward();
  EXPECT_EQ(seen,
            (std::vector{at::Float32MatmulPrecision::HIGH, at::Float32MatmulPrecision::HIGH}));
  EXPECT_EQ(at::globalContext().float32MatmulPrecision(), at::Float32MatmulPrecision::HIGHEST);
}

TEST(Region, EarlyStopWaitsForTheMark) {
  const at::Tensor x = random_leaf({4});
  for (const EarlyStop stop : {EarlyStop::On, EarlyStop::Off, EarlyStop::AfterMark}) {
    int behind_values = 0, at_the_end = 0;
    Tape tape;
    const at::Tensor y = tape.run({.name = "collective", .release_outputs = false, .stop = stop},
                                  [&](const Tensors& in) {
                                    const at::Tensor e = in[0].exp();
                                    ++behind_values;
                                    allow_early_stop();
                                    ++at_the_end;
                                    return Tensors{e};
                                  },
                                  {x})[0];
    y.sum().backward();
    EXPECT_EQ(behind_values, stop == EarlyStop::On ? 1 : 2);
    EXPECT_EQ(at_the_end, stop == EarlyStop::Off ? 2 : 1);
  }
}

TEST(Region, WithoutGradModeItIsACallAndLeavesNothing) {
  const at::Tensor x = random_leaf({4});
  const at::NoGradGuard no_grad;
  Tape tape;
  EXPECT_EQ(tape.run(
                    test::released("eval"), [](const at::Tensor& t) { return t.exp(); }, x)
                .grad_fn(),
            nullptr);
  EXPECT_TRUE(tape.report().empty());
  EXPECT_EQ(recompute_objects().regions, 0);
}

TEST(Region, ASharedParameterGetsOneGradientAndItsHookRunsOnce) {
  const at::Tensor x = random_leaf({4, 4}), w = random_leaf({4, 4});
  int hooks = 0;
  w.register_hook([&](const at::Tensor&) { ++hooks; });
  Tape tape;
  const auto fn = [w](const at::Tensor& t) { return at::tanh(at::mm(t, w)); };
  {
    const TapeScope scope(tape);
    at::Tensor h = x;
    for (const char* name : {"first", "second"}) h = tape.run(test::released(name), fn, h);
    h.sum().backward();
  }
  EXPECT_EQ(hooks, 1);
  const at::Tensor gradient = w.grad().clone();
  test::expect_bitwise(gradient, grad_of(fn(fn(x)).sum(), {w})[0], "gradient");
}

TEST(Region, GradientsOfReplayedInputsDoNotOutliveBackward) {
  install_byte_accounting();
  const at::Tensor x = random_leaf({64, 64});
  Tape tape;
  const int64_t before = bytes().live;
  {
    const at::Tensor loss =
        tape.run(
                test::released("exp"), [](const at::Tensor& t) { return t.exp().tanh(); }, x * 1)
            .sum();
    (void)grad_of(loss, {x});
    tape.clear();
  }
  EXPECT_EQ(bytes().live, before);
}

TEST(Region, NodesOfLetheAndOfATenAreRecomputedAlike) {
  const at::Tensor x = random_leaf({8, 8});
  const auto cube = [](const at::Tensor& t) {
    at::Tensor y;
    {
      const at::AutoDispatchBelowADInplaceOrView below;
      y = t * t * t;
    }
    record("test::cube", {t}, {y}, {t, y}, [](const BackwardInput& in) {
      return Tensors{in.grads[0] * 3 * in.saved[0] * in.saved[0] + in.saved[1] * 0};
    });
    return y;
  };
  expect_same_gradients(
      [&](const RegionRunner& run) {
        const at::Tensor y = run({.name = "cubes", .release_outputs = true},
                                 [&](const Tensors& in) {
                                   const auto [a, b] = forked<2>(in[0].sin());
                                   return Tensors{cube(a) * cube(b).exp()};
                                 },
                                 {x})[0];
        return cube(y).sum();
      },
      {x},
      {.checked = true});
}

}  // namespace
}  // namespace lethe
