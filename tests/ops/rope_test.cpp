#include "lethe/ops/rope.h"

#include <cmath>

#include "support/golden.h"
#include "support/op_checks.h"
#include <gtest/gtest.h>

#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

#include "lethe/base/error.h"
#include "lethe/ops/implementation.h"

namespace lethe {
namespace {

constexpr double kMainTheta = 10000, kCompressTheta = 160000;

at::Tensor positions_of(int64_t tokens, const at::Tensor& like) {
  return (at::arange(tokens, at::kLong) * 37 + 5).to(like.device());
}

// Rotates 6 of the channels; positions and table follow the device of x.
std::vector<at::Tensor> rotate(const std::vector<at::Tensor>& in) {
  const at::Tensor table = ops::rope_inv_freq(6, kMainTheta, {}).to(in[0].device());
  return {ops::rope(in[0], positions_of(in[0].size(0), in[0]), table, false)};
}

at::Tensor unit_vector(int64_t width, int64_t channel) {
  at::Tensor x = at::zeros({1, width});
  x[0][channel] = 1;
  return x;
}

TEST(RopeTable, IsBitwiseTheGoldenTable) {
  const test::TensorMap golden =
      test::load_safetensors(std::string(LETHE_GOLDEN_DIR) + "/unit/rope.safetensors");

  struct Case {
    const char* name;
    int64_t rope_dims, original;
  };

  for (const Case& c : {Case{"flash", 64, 65536}, Case{"t", 16, 64}, Case{"rd8", 8, 64}}) {
    const std::string name = c.name;
    test::expect_bitwise(
        ops::rope_inv_freq(c.rope_dims, kMainTheta, {}), golden.at(name + ".main.inv_freq"), name);
    const ops::RopeYarn yarn{16, c.original, 32, 1};
    test::expect_bitwise(ops::rope_inv_freq(c.rope_dims, kCompressTheta, yarn),
                         golden.at(name + ".compress.inv_freq"),
                         name + " with YaRN");
  }
}

// The spec prints real numbers; the table takes at most four float32 roundings to each (2^-24
// apiece). The bits themselves are compared above.
TEST(RopeTable, MatchesTheNumbersOfModelSpec41) {
  constexpr double kFourRoundings = 4.0 / (1 << 24);
  const auto expect_entry = [](const at::Tensor& table, int64_t m, double want) {
    EXPECT_NEAR(table[m].item<double>(), want, kFourRoundings * want) << "pair " << m;
  };
  const at::Tensor w = ops::rope_inv_freq(64, kCompressTheta, ops::RopeYarn{16, 65536, 32, 1});
  const double flash[][2] = {{0, 1},
                             {1, 6.876560219e-1},
                             {15, 3.635538584e-3},
                             {16, 2.265625e-3},
                             {20, 2.969777783e-4},
                             {24, 1.953125e-5},
                             {25, 5.372312671e-6},
                             {31, 5.680529037e-7}};
  for (const auto& [m, want] : flash) expect_entry(w, static_cast<int64_t>(m), want);
  expect_entry(ops::rope_inv_freq(64, kMainTheta, {}), 31, 1.333521432e-4);
  const at::Tensor small = ops::rope_inv_freq(8, kCompressTheta, ops::RopeYarn{16, 64, 32, 1});
  const double rd8[] = {1, 3.125e-3, 1.5625e-4, 7.8125e-6};
  for (int64_t m = 0; m < 4; ++m) expect_entry(small, m, rd8[m]);
}

TEST(RopeTable, ImpossibleSettingsNameTheValue) {
  EXPECT_THROW(ops::rope_inv_freq(7, kMainTheta, {}), ConfigError);
  EXPECT_THROW(ops::rope_inv_freq(0, kMainTheta, {}), ConfigError);
  EXPECT_THROW(ops::rope_inv_freq(8, 1.0, {}), ConfigError);
  EXPECT_THROW(ops::rope_inv_freq(8, kMainTheta, ops::RopeYarn{0, 64, 32, 1}), ConfigError);
}

TEST(Rope, MatchesTheGoldenRotations) {
  const test::TensorMap golden =
      test::load_safetensors(std::string(LETHE_GOLDEN_DIR) + "/unit/rope.safetensors");
  const at::Tensor& positions = golden.at("positions");
  for (const std::string name : {"flash", "t", "rd8"})
    for (const std::string kind : {".main", ".compress"}) {
      const at::Tensor x = golden.at(name + ".x")[0], table = golden.at(name + kind + ".inv_freq");
      test::expect_same_maths(ops::rope(x, positions, table, false),
                              golden.at(name + kind + ".rotated")[0],
                              name + kind + " rotated");
      test::expect_same_maths(ops::rope(x, positions, table, true),
                              golden.at(name + kind + ".inverse_of_x")[0],
                              name + kind + " rotated back");
      test::expect_same_maths(ops::rope(x.to(at::kDouble), positions, table, false),
                              golden.at(name + kind + ".rotated")[0],
                              name + kind + " in float64");
    }
}

TEST(Rope, GradientsMatchCentralDifferences) {
  for (const int64_t tokens : test::kTokenCounts) {
    SCOPED_TRACE(tokens);
    test::expect_gradients(rotate, {test::leaf({tokens, 9})});
    test::expect_gradients(rotate, {test::leaf({tokens, 2, 8})});
  }
}

TEST(Rope, Float32FollowsFloat64) {
  for (const int64_t tokens : test::kTokenCounts) {
    test::expect_float32_follows_float64(rotate, {test::leaf({tokens, 3, 10})});
    test::expect_float32_follows_float64(rotate, {test::leaf({tokens, 6})});
    test::expect_float32_follows_float64(rotate, {test::leaf({tokens, 2, 39})});
  }
}

// Far positions: the angle is 24 bits wide and its rotation must still be right.
TEST(Rope, Float32FollowsFloat64AtFarPositions) {
  const at::Tensor positions = at::tensor(
      {0L, 1L, 4095L, 65536L, 1048575L, 16777216L, 1L << 31, 1L << 40, 1L << 62}, at::kLong);
  const at::Tensor table = ops::rope_inv_freq(64, kMainTheta, {});
  test::expect_float32_follows_float64(
      [&](const std::vector<at::Tensor>& in) {
        return std::vector<at::Tensor>{ops::rope(in[0], positions, table, false),
                                       ops::rope(in[0], positions, table, true)};
      },
      {test::leaf({9, 2, 72})});
}

TEST(Rope, KernelAndReferenceAgreeInFloat32) {
  const at::Tensor x = at::randn({65, 3, 40}), p = positions_of(65, x),
                   w = ops::rope_inv_freq(24, kMainTheta, {});
  ops::choose_implementations({.all = ops::Implementation::Reference});
  const at::Tensor want = ops::rope(x, p, w, true);
  ops::choose_implementations({.all = ops::Implementation::Fused});
  const at::Tensor got = ops::rope(x, p, w, true);
  ops::choose_implementations({});
  test::expect_same_maths(got, want, "rotated back");
}

TEST(Rope, MetaAndStrides) {
  test::expect_meta_matches(rotate, {test::leaf({5, 3, 10})});
  test::expect_strides_do_not_matter(rotate, {test::leaf({5, 3, 10})});
}

TEST(Rope, ZeroTokensGiveZeroTokens) {
  EXPECT_EQ(rotate({test::leaf({0, 3, 10})})[0].sizes(), at::IntArrayRef({0, 3, 10}));
}

TEST(Rope, Bfloat16IsRotatedInFloat32AndCastOnce) {
  const at::Tensor x = at::randn({7, 8}).to(at::kBFloat16);
  test::expect_bitwise(rotate({x})[0], rotate({x.to(at::kFloat)})[0].to(at::kBFloat16), "bf16");
}

TEST(Rope, InverseUndoesTheRotation) {
  const at::Tensor x = test::leaf({16, 2, 8}), p = positions_of(16, x),
                   w = ops::rope_inv_freq(8, kMainTheta, {});
  test::expect_close_rms(
      ops::rope(ops::rope(x, p, w, false), p, w, true), x, 1e-14, "there and back");
}

// model spec 14 #1, known failures M2
TEST(Rope, Pitfall1InterleavedNotRotateHalf) {
  const at::Tensor w = ops::rope_inv_freq(64, kMainTheta, {});
  const at::Tensor y = ops::rope(unit_vector(96, 32), at::ones({1}, at::kLong), w, false)[0];
  EXPECT_NEAR(y[32].item<double>(), std::cos(1.0), 1e-6);
  EXPECT_NEAR(y[33].item<double>(), std::sin(1.0), 1e-6);
  EXPECT_EQ(y[32 + 32].item<float>(), 0) << "energy went half a rotation away: rotate-half";
}

// known failures M2: only the trailing channels rotate
TEST(Rope, PitfallM2LeadingChannelsPassUnchanged) {
  const at::Tensor x = at::randn({3, 96}), w = ops::rope_inv_freq(64, kMainTheta, {});
  const at::Tensor y = ops::rope(x, at::full({3}, 11, at::kLong), w, false);
  test::expect_bitwise(y.narrow(1, 0, 32), x.narrow(1, 0, 32), "leading channels");
}

// model spec 14 #4
TEST(Rope, Pitfall4NoYarnAmplitude) {
  const at::Tensor w = ops::rope_inv_freq(64, kCompressTheta, ops::RopeYarn{16, 65536, 32, 1});
  const at::Tensor x = test::leaf({5, 64}), p = at::tensor({0, 1, 4095, 65536, 1048575}, at::kLong);
  test::expect_close_rms(ops::rope(x, p, w, false).norm(2, -1), x.norm(2, -1), 1e-14, "norms");
}

// model spec 14 #21
TEST(Rope, Pitfall21EveryRopeChannelRotates) {
  const at::Tensor w = ops::rope_inv_freq(64, kMainTheta, {}), x = at::ones({1, 512}, at::kDouble);
  const at::Tensor moved = ops::rope(x, at::ones({1}, at::kLong), w, false) != x;
  EXPECT_EQ(moved.sum().item<int64_t>(), 64);
  EXPECT_TRUE(moved.narrow(1, 448, 64).all().item<bool>());
}

// the table is rounded to float32 even in float64 runs, and so is the angle
TEST(Rope, AngleIsRoundedToFloat32InFloat64) {
  const at::Tensor w = ops::rope_inv_freq(64, kMainTheta, {});
  const at::Tensor x = unit_vector(64, 2).to(at::kDouble);
  const float angle = 1048575.0F * w[1].item<float>();
  const at::Tensor y = ops::rope(x, at::full({1}, 1048575, at::kLong), w, false);
  EXPECT_NEAR(y[0][2].item<double>(), std::cos(static_cast<double>(angle)), 1e-14);
}

TEST(Rope, WrongArgumentsAreRefused) {
  const at::Tensor x = at::zeros({3, 8}), p = at::zeros({3}, at::kLong),
                   w = ops::rope_inv_freq(8, kMainTheta, {});
  EXPECT_THROW(ops::rope(at::zeros({8}), p, w, false), ShapeError);
  EXPECT_THROW(ops::rope(x, at::zeros({4}, at::kLong), w, false), ShapeError);
  EXPECT_THROW(ops::rope(x, p, ops::rope_inv_freq(10, kMainTheta, {}), false), ShapeError);
  EXPECT_THROW(ops::rope(x, p.to(at::kInt), w, false), DtypeError);
  EXPECT_THROW(ops::rope(x, p, w.to(at::kBFloat16), false), DtypeError);
  EXPECT_THROW(ops::rope(x.to(at::kLong), p, w, false), DtypeError);
}

}  // namespace
}  // namespace lethe
