#include <cmath>
#include <cstring>

#include "support/op_checks.h"
#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

#include "lethe/core/byte_accounting.h"
#include "lethe/ops/implementation.h"
#include "lethe/ops/mhc_head.h"
#include "lethe/ops/mhc_post.h"
#include "lethe/ops/mhc_pre.h"

// The kernels of mhc_pre, mhc_post and mhc_head against their references.
namespace lethe {
namespace {

using Tensors = std::vector<at::Tensor>;
constexpr double kEps = 1e-6;

struct Shape {
  int64_t tokens, streams, width;
  int64_t iterations = 20;
};

struct Operator {
  const char* name;
  test::TensorFn run;
  Tensors inputs;
  size_t streams;  // which input
};

at::Tensor projection(int64_t rows, int64_t width) {
  const double size = 1 / std::sqrt(static_cast<double>(width));
  return (test::leaf({rows, width}).detach() * size).requires_grad_();
}

std::vector<Operator> operators(const Shape& s) {
  const int64_t n = s.streams, rows = (2 + n) * n;
  const auto streams = [&] { return test::leaf({s.tokens, n, s.width}); };
  return {{"mhc_pre",
           [s](const Tensors& in) {
             const auto [u, post, comb, weights] =
                 ops::mhc_pre(in[0], in[1], in[2], in[3], s.iterations, kEps, kEps);
             return Tensors{u, post, comb};
           },
           {streams(), projection(rows, n * s.width), test::leaf({rows}), test::leaf({3})},
           0},
          {"mhc_post",
           [](const Tensors& in) { return Tensors{ops::mhc_post(in[0], in[1], in[2], in[3])}; },
           {test::leaf({s.tokens, s.width}),
            streams(),
            test::leaf({s.tokens, n}),
            test::leaf({s.tokens, n, n})},
           1},
          {"mhc_head",
           [](const Tensors& in) {
             return Tensors{ops::mhc_head(in[0], in[1], in[2], in[3], kEps, kEps)};
           },
           {streams(), projection(n, n * s.width), test::leaf({n}), test::leaf({1})},
           0}};
}

Tensors narrowed(const Tensors& inputs) {
  Tensors out;
  for (const at::Tensor& t : inputs) out.push_back(t.detach().to(at::kFloat).requires_grad_());
  return out;
}

// Outputs, then the gradients of all inputs; cotangents are normal numbers times `magnitude`.
Tensors results(const Operator& op, const Tensors& inputs, double magnitude = 1) {
  Tensors out = op.run(inputs), sent;
  at::manual_seed(11);
  for (const at::Tensor& y : out)
    sent.push_back((at::randn(y.sizes(), at::kFloat) * magnitude).to(y.scalar_type()));
  for (const at::Tensor& g : torch::autograd::grad(out, inputs, sent)) out.push_back(g);
  return out;
}

Tensors widened(const Tensors& inputs) {
  Tensors out;
  for (const at::Tensor& t : inputs) out.push_back(t.detach().to(at::kDouble).requires_grad_());
  return out;
}

void expect_all_same_maths(const Tensors& got, const Tensors& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    test::expect_same_maths(got[i], want[i], what + ", result " + std::to_string(i));
}

void expect_all_bitwise(const Tensors& got, const Tensors& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    test::expect_bitwise(got[i], want[i], what + ", result " + std::to_string(i));
}

// Fractions of vectors, register tiles, blocks of tokens, partial sums and pieces of a stream.
TEST(MhcFused, FollowsFloat64AtEveryShape) {
  for (const Shape& s : {Shape{1, 4, 16},
                         Shape{3, 1, 5},
                         Shape{4, 2, 33, 1},
                         Shape{33, 3, 6},
                         Shape{64, 4, 100},
                         Shape{25, 4, 1},
                         Shape{9, 5, 40},
                         Shape{31, 8, 24, 1},
                         Shape{50, 9, 12},
                         Shape{7, 4, 1100},
                         Shape{200, 4, 64}}) {
    SCOPED_TRACE(testing::Message() << s.tokens << ' ' << s.streams << ' ' << s.width);
    for (const Operator& op : operators(s)) {
      SCOPED_TRACE(op.name);
      test::expect_float32_follows_float64(op.run, op.inputs);
    }
  }
}

TEST(MhcFused, GradientsAreExactFromTinyToHugeOnes) {
  for (const Operator& op : operators({100, 4, 48}))
    for (const double magnitude : {1e-6, 1e-3, 1e4, 1e8}) {
      const Tensors narrow = narrowed(op.inputs);
      expect_all_same_maths(results(op, narrow, magnitude),
                            results(op, widened(narrow), magnitude),
                            std::string(op.name) + " at " + std::to_string(magnitude));
    }
}

TEST(MhcFused, ChoiceDecidesWhatRunsAndBothAgree) {
  for (const Operator& op : operators({37, 4, 72})) {
    const Tensors in = narrowed(op.inputs);
    ops::reset_implementations_that_ran();
    ops::choose_implementations({.all = ops::Implementation::Fused, .overrides = {}});
    const Tensors fused = results(op, in);
    EXPECT_EQ(ops::implementations_that_ran().at(op.name).rfind("fused", 0), 0U);
    ops::reset_implementations_that_ran();
    ops::choose_implementations({.all = ops::Implementation::Reference, .overrides = {}});
    const Tensors reference = results(op, in);
    EXPECT_EQ(ops::implementations_that_ran().at(op.name), "reference");
    ops::choose_implementations({});
    expect_all_same_maths(fused, reference, op.name);
  }
}

// The embedding expanded over the streams is not copied, and its layout does not change a bit.
TEST(MhcFused, StreamsExpandedFromOneRowGiveTheSameBits) {
  for (const Shape& s : {Shape{30, 4, 40}, Shape{5, 3, 700}})
    for (const Operator& op : operators(s)) {
      Tensors expanded = narrowed(op.inputs), dense = narrowed(op.inputs);
      const at::Tensor row = at::randn({s.tokens, 1, s.width});
      const at::Tensor all = row.expand({-1, s.streams, -1});
      expanded[op.streams] = all.detach().requires_grad_();
      dense[op.streams] = all.contiguous().requires_grad_();
      ASSERT_EQ(expanded[op.streams].stride(1), 0);
      expect_all_bitwise(results(op, expanded), results(op, dense), op.name);
    }
}

TEST(MhcFused, BitsDoNotDependOnTheNumberOfThreads) {
  const int before = at::get_num_threads();
  for (const Operator& op : operators({150, 4, 56})) {
    const Tensors in = narrowed(op.inputs);
    at::set_num_threads(1);
    const Tensors one = results(op, in);
    for (const int threads : {2, 3}) {
      at::set_num_threads(threads);
      expect_all_bitwise(results(op, in), one, op.name);
    }
  }
  at::set_num_threads(before);
}

TEST(MhcFused, ExtremeLogitsStayFiniteAndExact) {
  for (const Operator& op : operators({40, 4, 16})) {
    if (std::strcmp(op.name, "mhc_post") == 0) continue;
    Tensors in = narrowed(op.inputs);
    in[3] = (in[3].detach() * 60).requires_grad_();
    const Tensors got = results(op, in), want = results(op, widened(in));
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(got[i].abs().max().item<double>() < INFINITY) << op.name << ' ' << i;
      // A logit of some hundreds is rounded to 1e-5 before the exponential sees it.
      const double scale = want[i].abs().max().item<double>();
      EXPECT_LE((got[i].to(at::kDouble) - want[i]).abs().max().item<double>(), 2e-3 * scale)
          << op.name << ' ' << i;
    }
  }
}

TEST(MhcFused, Bfloat16IsWidenedAndRoundedOnce) {
  for (const Operator& op : operators({20, 4, 24})) {
    Tensors narrow = narrowed(op.inputs), wide = narrowed(op.inputs);
    for (size_t i = 0; i <= op.streams; ++i) {
      narrow[i] = narrow[i].detach().to(at::kBFloat16).requires_grad_();
      wide[i] = narrow[i].detach().to(at::kFloat).requires_grad_();
    }
    Tensors got = op.run(narrow), want = op.run(wide), sent_narrow, sent_wide;
    for (size_t i = 0; i < got.size(); ++i) {
      test::expect_bitwise(got[i], want[i].to(got[i].scalar_type()), op.name);
      sent_narrow.push_back(at::randn(got[i].sizes(), at::kFloat).to(got[i].scalar_type()));
      sent_wide.push_back(sent_narrow.back().to(at::kFloat));
    }
    const Tensors d = torch::autograd::grad(got, narrow, sent_narrow),
                  d_wide = torch::autograd::grad(want, wide, sent_wide);
    for (size_t i = 0; i < d.size(); ++i)
      test::expect_bitwise(d[i], d_wide[i].to(d[i].scalar_type()), op.name);
  }
}

// Beyond outputs, saved tensors and gradients nothing grows with the tokens.
TEST(MhcFused, TemporariesDoNotGrowWithTheTokens) {
  install_byte_accounting();
  const auto temporaries = [](int64_t tokens, size_t which) {
    const at::NoGradGuard no_grad;
    const Operator op = operators({tokens, 4, 32})[which];
    const Tensors in = narrowed(op.inputs);
    reset_peak();
    const int64_t before = bytes().live;
    const Tensors out = op.run(in);
    int64_t returned = 0;
    for (const at::Tensor& y : out) returned += static_cast<int64_t>(y.nbytes());
    return bytes().peak - before - returned;
  };
  const int64_t per_token[] = {4 + 24 + 1, 0, 4 + 1};  // pre, mix and r are outputs as well
  for (const size_t which : {0U, 1U, 2U}) {
    const int64_t few = temporaries(1024, which) - 1024 * 4 * per_token[which];
    EXPECT_EQ(few, temporaries(8192, which) - 8192 * 4 * per_token[which]) << which;
  }
}

TEST(MhcFused, TemporariesOfTheGradientsDoNotGrowWithTheTokens) {
  install_byte_accounting();
  const auto temporaries = [](int64_t tokens, size_t which) {
    const Operator op = operators({tokens, 4, 32})[which];
    const Tensors in = narrowed(op.inputs), out = op.run(in);
    Tensors sent;
    for (const at::Tensor& y : out) sent.push_back(at::randn(y.sizes(), at::kFloat));
    reset_peak();
    const int64_t before = bytes().live;
    const Tensors grads = torch::autograd::grad(out, in, sent, /*retain_graph=*/true);
    int64_t returned = 0;
    for (const at::Tensor& g : grads) returned += static_cast<int64_t>(g.nbytes());
    return bytes().peak - before - returned;
  };
  for (const size_t which : {0U, 1U, 2U})
    EXPECT_EQ(temporaries(16384, which), temporaries(32768, which)) << which;
}

}  // namespace
}  // namespace lethe
