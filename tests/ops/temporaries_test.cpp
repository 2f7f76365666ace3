#include <functional>

#include <gtest/gtest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

#include "lethe/core/byte_accounting.h"
#include "lethe/ops/hadamard.h"
#include "lethe/ops/rms_norm.h"
#include "lethe/ops/rope.h"
#include "lethe/ops/sinkhorn.h"

// The small row-wise operators: their scratch knows threads and rows' width, never the tokens. The
// others ask the same in their own files.
namespace lethe {
namespace {

using Operator = std::function<at::Tensor(const at::Tensor&)>;

constexpr double kEps = 1e-6;
constexpr int64_t kFewTokens = 256, kManyTokens = 8192;

struct Temporaries {
  int64_t forward, backward;
  bool operator==(const Temporaries&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Temporaries& t) {
  return out << "forward " << t.forward << " bytes, backward " << t.backward;
}

int64_t size_of(const at::Tensor& t) {
  return static_cast<int64_t>(t.nbytes());
}

// Peak bytes beside inputs, results and gradients.
Temporaries temporaries(const Operator& f, std::vector<int64_t> shape, int64_t tokens) {
  shape[0] = tokens;
  const at::Tensor x = at::randn(shape, at::kFloat).requires_grad_();
  Temporaries out{};
  {
    const at::NoGradGuard no_grad;
    const int64_t before = bytes().live;
    reset_peak();
    const at::Tensor y = f(x);
    out.forward = bytes().peak - before - size_of(y);
  }
  const at::Tensor y = f(x), d_y = at::ones_like(y);
  const int64_t before = bytes().live;
  reset_peak();
  const auto gradients = torch::autograd::grad({y}, {x}, {d_y});
  out.backward = bytes().peak - before - size_of(gradients[0]);
  return out;
}

struct Case {
  const char* name;
  std::vector<int64_t> shape;  // the first size is replaced by the tokens
  Operator run;
};

std::vector<Case> cases() {
  const auto rotate = [positions = at::arange(kManyTokens, at::kLong),
                       table = ops::rope_inv_freq(16, 10000, {})](const at::Tensor& x) {
    return ops::rope(x, positions.narrow(0, 0, x.size(0)), table, /*inverse=*/false);
  };
  return {{"rms_norm", {0, 96}, [](const at::Tensor& x) { return ops::rms_norm(x, {}, kEps); }},
          {"rope", {0, 4, 32}, rotate},
          {"hadamard", {0, 64}, [](const at::Tensor& x) { return ops::hadamard(x); }},
          {"sinkhorn", {0, 4, 4}, [](const at::Tensor& x) { return ops::sinkhorn(x, 20, kEps); }}};
}

TEST(Temporaries, OfRowWiseKernelsDoNotGrowWithTheTokens) {
  install_byte_accounting();
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(temporaries(c.run, c.shape, kFewTokens), temporaries(c.run, c.shape, kManyTokens));
  }
}

}  // namespace
}  // namespace lethe
