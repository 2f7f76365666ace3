#include "lethe/optim/muon.h"

#include <cmath>
#include <iostream>

#include "optim/optimizer_support.h"
#include "support/golden.h"
#include "support/gradcheck.h"
#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/randn.h>

#include "lethe/optim/optimizer.h"

namespace lethe {
namespace {

at::Tensor orthogonalized(const at::Tensor& x) {
  at::Tensor out = x.clone(), spare = at::empty_like(x);
  hybrid_newton_schulz(out, spare);
  return out;
}

double relative_l2(const at::Tensor& got, const at::Tensor& want) {
  const at::Tensor g = got.detach().to(at::kDouble), w = want.to(at::kDouble);
  const double norm = w.norm().item<double>(), error = (g - w).norm().item<double>();
  return norm > 0 ? error / norm : error;
}

struct Case {
  test::TensorMap data;
  double rows = 0, lr = 0, momentum = 0, update_rms = 0, weight_decay = 0, grad_scale = 0;

  explicit Case(const std::string& name)
      : data(test::load_safetensors(std::string(LETHE_GOLDEN_DIR) + "/muon/" + name +
                                    ".safetensors")) {
    const at::Tensor s = data.at("settings");
    rows = s[0].item<double>(), lr = s[1].item<double>(), momentum = s[2].item<double>();
    update_rms = s[3].item<double>(), weight_decay = s[4].item<double>();
    grad_scale = s[5].item<double>();
  }
};

struct Errors {
  double u, w, m, change;  // relative L2: first U, last W and M, W - start
};

// tools/make_muon_golden.py says what the file holds.
Errors errors_of(const Case& c, at::ScalarType dtype) {
  const auto rows = static_cast<int64_t>(c.rows);
  const at::Tensor start = c.data.at("start"), grads = c.data.at("grads");
  const at::Tensor w = start.to(dtype).clone().requires_grad_();
  ParameterGroup group = test::muon_group(w, rows);
  group.momentum = c.momentum;
  group.update_rms = c.update_rms;
  group.weight_decay = c.weight_decay;
  Optimizer optimizer({group});
  for (int64_t i = 0; i < grads.size(0); ++i) {
    w.mutable_grad() = grads[i].to(dtype).clone();
    optimizer.step(c.lr, c.grad_scale);
  }
  const at::Tensor first = (grads[0].to(at::kDouble) * ((1 + c.momentum) * c.grad_scale)).to(dtype);
  const at::Tensor u = orthogonalized(first.view({-1, rows, first.size(-1)})).view(first.sizes());
  const at::Tensor from = start.to(at::kDouble);
  return {.u = relative_l2(u, c.data.at("u")),
          .w = relative_l2(w, c.data.at("w")),
          .m = relative_l2(optimizer.state()[0].value, c.data.at("m")),
          .change = relative_l2(w.detach().to(at::kDouble) - from, c.data.at("w") - from)};
}

// Wide, tall, square, one row, one column, gate and up halves, output groups, overlapping halves,
// stacks of experts (two of them idle in one case), gradients near 1e-30.
constexpr const char* kGaussian[] = {"gaussian_wide",
                                     "gaussian_tall",
                                     "gaussian_square",
                                     "gaussian_row",
                                     "gaussian_column",
                                     "gaussian_tiny",
                                     "gate_up_halves",
                                     "output_groups",
                                     "overlap_halves",
                                     "expert_gate_up",
                                     "expert_down",
                                     "experts_idle"};
constexpr const char* kHard[] = {"condition_1e6", "condition_1e9", "few_rows", "few_rows_wide"};

TEST(MuonGolden, GaussianMatricesInFloat64AgreeTo1e10) {
  for (const char* name : kGaussian) {
    const Errors e = errors_of(Case(name), at::kDouble);
    EXPECT_LT(e.u, 1e-10) << name;
    EXPECT_LT(e.w, 1e-10) << name;
    EXPECT_LT(e.m, 1e-10) << name;
    EXPECT_LT(e.change, 1e-10) << name;
  }
}

TEST(MuonGolden, GaussianMatricesInFloat32AgreeTo1e5) {
  for (const char* name : kGaussian) {
    const Errors e = errors_of(Case(name), at::kFloat);
    EXPECT_LT(e.u, 1e-5) << name;
    EXPECT_LT(e.w, 1e-5) << name;
    EXPECT_LT(e.m, 1e-5) << name;
  }
}

// Directions whose singular value is below float32's rounding of the largest have no correct digit
// in anyone's float32: the limit is what plain torch reaches.
TEST(MuonGolden, HardMatricesInFloat32StayWithinTwiceTorchsError) {
  for (const char* name : kHard) {
    const Case c(name);
    const double torch = c.data.at("float32_error").item<double>();
    const Errors e = errors_of(c, at::kFloat);
    std::cout << name << ": float32 error " << e.u << ", torch's " << torch << "\n";
    EXPECT_LE(e.u, 2 * torch) << name;
  }
}

TEST(MuonGolden, HardMatricesInFloat64AgreeTo1e10OrToTheirCondition) {
  for (const char* name : kHard) {
    const Errors e = errors_of(Case(name), at::kDouble);
    std::cout << name << ": float64 error " << e.u << "\n";
    EXPECT_LT(e.u, 1e-10) << name;
    EXPECT_LT(e.w, 1e-10) << name;
  }
}

TEST(MuonGolden, AZeroGradientGivesAZeroUpdateAndOnlyDecays) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const Errors e = errors_of(Case("zero"), dtype);
    EXPECT_EQ(e.u, 0);
    EXPECT_EQ(e.m, 0);
    EXPECT_LT(e.w, dtype == at::kDouble ? 1e-15 : 1e-6);
  }
}

TEST(Muon, AZeroMatrixBesideOthersStaysExactlyZero) {
  const at::Tensor x = at::randn({3, 5, 7});
  x[1].zero_();
  const at::Tensor u = orthogonalized(x);
  EXPECT_TRUE(u[1].equal(at::zeros({5, 7})));
  EXPECT_TRUE(u.isfinite().all().item<bool>());
}

// How many matrices LibTorch multiplies at once moves only the rounding of its products: measured
// at most 3.5e-15 in float64 and nothing in float32; the bounds leave room for other processors,
// the one of float32 is that of the oracle's Gaussian matrices.
double rounding_of(at::ScalarType dtype) {
  return dtype == at::kDouble ? 1e-13 : 1e-5;
}

// Sizes at which LibTorch's own loops, and MKL's kernels for small and for large products run.
TEST(Muon, AMatrixIsOrthogonalizedAsItIsAlone) {
  for (const auto dtype : {at::kFloat, at::kDouble})
    for (const auto& [rows, cols] :
         {std::pair{1, 40}, {3, 5}, {20, 48}, {48, 20}, {64, 64}, {130, 257}, {256, 100}}) {
      const at::Tensor x = at::randn({7, rows, cols}, dtype);
      const at::Tensor together = orthogonalized(x);
      for (int64_t i = 0; i < 7; ++i)
        EXPECT_LT(relative_l2(together[i], orthogonalized(x.narrow(0, i, 1).clone())[0]),
                  rounding_of(dtype))
            << rows << "x" << cols;
    }
}

TEST(Muon, AnySizeOfTheWorkspaceGivesTheSameUpdate) {
  const at::Tensor start = at::randn({5, 24, 16}), grad = at::randn({5, 24, 16});
  Tensors results;
  for (const int64_t bytes :
       {int64_t{1}, int64_t{2} * 2 * (24 * 16 + 16 * 16) * 4, kMuonWorkspaceBytes}) {
    const at::Tensor w = start.clone(), m = at::zeros_like(w);
    muon_update({.lr = 0.1, .workspace_bytes = bytes}, 24, grad, m, w);
    results.push_back(w);
  }
  EXPECT_LT(relative_l2(results[0], results[2]), rounding_of(at::kFloat)) << "one at a time";
  EXPECT_LT(relative_l2(results[1], results[2]), rounding_of(at::kFloat)) << "two at a time";
}

TEST(Muon, TheSameThreadCountGivesTheSameBits) {
  const int threads = at::get_num_threads();
  for (const int count : {1, 2})
    for (const auto& [rows, cols] : {std::pair{24, 16}, {130, 257}, {512, 384}}) {
      at::set_num_threads(count);
      const at::Tensor start = at::randn({3, rows, cols}), grad = at::randn({3, rows, cols});
      Tensors results;
      for (int run = 0; run < 2; ++run) {
        const at::Tensor w = start.clone(), m = at::zeros_like(w);
        muon_update({.lr = 0.1}, rows, grad, m, w);
        results.push_back(w);
      }
      test::expect_bitwise(results[0], results[1], std::to_string(rows) + " rows");
    }
  at::set_num_threads(threads);
}

// The polynomial of a singular value in [0.003, 1] ends within a few percent of 1 (model spec 12).
TEST(Muon, AGaussianMatrixBecomesNearlyOrthogonal) {
  const at::Tensor u = orthogonalized(at::randn({1, 32, 128}, at::kDouble))[0];
  const at::Tensor gram = u.mm(u.t()) - at::eye(32, at::kDouble);
  EXPECT_LT(gram.abs().max().item<double>(), 0.1);
}

TEST(Muon, TheUpdateHasTheRootMeanSquareOfTheSetting) {
  const at::Tensor w = at::zeros({64, 64}, at::kDouble), m = at::zeros_like(w);
  muon_update({.lr = 1, .weight_decay = 0}, 64, at::randn({64, 64}, at::kDouble), m, w);
  EXPECT_NEAR(std::sqrt(w.square().mean().item<double>()), 0.18, 0.01);
}

TEST(Muon, AStackIsUpdatedAsItsMatricesAreAlone) {
  const at::Tensor start = at::randn({2 * 6, 10}), grad = at::randn({2 * 6, 10});
  const at::Tensor w = start.clone(), m = at::zeros_like(w);
  muon_update({.lr = 0.1}, 6, grad, m, w);
  for (int64_t half = 0; half < 2; ++half) {
    const at::Tensor alone = start.narrow(0, 6 * half, 6).clone(), am = at::zeros({6, 10});
    muon_update({.lr = 0.1}, 6, grad.narrow(0, 6 * half, 6).contiguous(), am, alone);
    EXPECT_LT(relative_l2(w.narrow(0, 6 * half, 6), alone), rounding_of(at::kFloat)) << half;
  }
}

}  // namespace
}  // namespace lethe
