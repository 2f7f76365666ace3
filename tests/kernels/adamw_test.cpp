#include "lethe/kernels/cpu/adamw.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace lethe::kernels {
namespace {

constexpr AdamwConstants kConstants{.lr = 1e-3,
                                    .beta1 = 0.9,
                                    .beta2 = 0.95,
                                    .eps = 1e-20,
                                    .weight_decay = 0.1,
                                    .grad_scale = 0.5,
                                    .update = 3};

struct Arrays {
  std::vector<float> grad, param, m, v;
};

Arrays some_arrays(size_t n) {
  std::mt19937_64 engine(17);
  const auto value = [&] {
    return static_cast<float>(static_cast<double>(engine() >> 11) * 0x1p-53 - 0.5);
  };
  Arrays a;
  for (size_t i = 0; i < n; ++i) {
    a.grad.push_back(value());
    a.param.push_back(value());
    a.m.push_back(value());
    a.v.push_back(value() * value() + 0.3F);
  }
  return a;
}

TEST(AdamwKernel, AnySplitOfTheRangeGivesTheSameBits) {
  constexpr size_t kCount = 1003;
  Arrays whole = some_arrays(kCount), split = whole;
  adamw(kConstants, kCount, whole.grad.data(), whole.param.data(), whole.m.data(), whole.v.data());
  for (size_t begin = 0, size = 1; begin < kCount; begin += size, size = size % 37 + 3) {
    const size_t n = std::min(size, kCount - begin);
    adamw(kConstants,
          static_cast<int64_t>(n),
          &split.grad[begin],
          &split.param[begin],
          &split.m[begin],
          &split.v[begin]);
  }
  EXPECT_EQ(std::memcmp(whole.param.data(), split.param.data(), kCount * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(whole.m.data(), split.m.data(), kCount * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(whole.v.data(), split.v.data(), kCount * sizeof(float)), 0);
}

TEST(AdamwKernel, GradientsWhoseSquaresUnderflowMoveByLessThanTheRate) {
  for (const float g : {1e-19F, 1e-21F, 1e-22F, 1e-25F, 1e-38F}) {
    float param = 0, m = 0, v = 0;
    AdamwConstants first = kConstants;
    first.update = 1;
    adamw(first, 1, &g, &param, &m, &v);
    EXPECT_TRUE(std::isfinite(param)) << g;
    EXPECT_LE(std::abs(param), 1.5e-3F) << g;
  }
}

}  // namespace
}  // namespace lethe::kernels
