#include "lethe/kernels/cpu/matmul.h"

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "support/threads.h"
#include <gtest/gtest.h>

namespace lethe::kernels {
namespace {

constexpr float kUntouched = 17;

// Row-major, or its transpose.
enum class Lie { Rows, Columns };

struct Stored {
  std::vector<float> data;
  StridedMatrix matrix;
};

Stored stored(int64_t rows, int64_t columns, Lie lie, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution;
  Stored out{.data = std::vector<float>(static_cast<size_t>(rows * columns)), .matrix = {}};
  for (float& x : out.data) x = distribution(random);
  out.matrix = {out.data.data(), lie == Lie::Rows ? columns : 1, lie == Lie::Rows ? 1 : rows};
  return out;
}

double at(const StridedMatrix& m, int64_t row, int64_t column) {
  return m.data[row * m.row_stride + column * m.column_stride];
}

struct Sizes {
  int64_t rows, columns, depth;
};

struct Operands {
  Sizes sizes;
  Stored a, b;

  Operands(const Sizes& s, Lie a_lies, Lie b_lies)
      : sizes(s), a(stored(s.rows, s.depth, a_lies, 1)), b(stored(s.depth, s.columns, b_lies, 2)) {}
};

// c with two columns of margin, all kUntouched before.
std::vector<float> product(const Operands& o, bool add, int threads) {
  const auto [rows, columns, depth] = o.sizes;
  std::vector<float> c(static_cast<size_t>(rows * (columns + 2)), kUntouched);
  std::vector<float> scratch(static_cast<size_t>(matmul_scratch({rows, columns, depth, threads})));
  matmul({.parallel = test::threads_of(threads),
          .rows = rows,
          .columns = columns,
          .depth = depth,
          .a = o.a.matrix,
          .b = o.b.matrix,
          .c = c.data(),
          .c_row = columns + 2,
          .add = add,
          .scratch = scratch.data()});
  return c;
}

void expect_product(const Operands& o, bool add) {
  const auto [rows, columns, depth] = o.sizes;
  const std::vector<float> c = product(o, add, 1);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns + 2; ++j) {
      const double got = c[static_cast<size_t>(i * (columns + 2) + j)];
      if (j >= columns) {
        ASSERT_EQ(got, kUntouched) << "behind row " << i;
        continue;
      }
      double want = add ? kUntouched : 0, size = std::abs(want);
      for (int64_t k = 0; k < depth; ++k) {
        const double term = at(o.a.matrix, i, k) * at(o.b.matrix, k, j);
        want += term;
        size += std::abs(term);
      }
      // Rounding of a sum of many: about 1e-7 of the sum of the sizes; a wrong element is 1.
      ASSERT_NEAR(got, want, 2e-6 * size) << "row " << i << " column " << j;
    }
}

void expect_products(const Sizes& sizes) {
  SCOPED_TRACE(testing::Message() << sizes.rows << " x " << sizes.columns << " over "
                                  << sizes.depth);
  for (const Lie a : {Lie::Rows, Lie::Columns})
    for (const Lie b : {Lie::Rows, Lie::Columns})
      for (const bool add : {false, true}) expect_product({sizes, a, b}, add);
}

TEST(MatmulKernel, EqualsTheDefinitionForEverySizeOfATile) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    for (int64_t rows = 1; rows <= 15; ++rows) expect_products({rows, 17, 9});
    for (int64_t columns = 1; columns <= 34; ++columns) expect_products({7, columns, 5});
    for (const int64_t depth : {0, 1, 2, 7, 8, 9, 31}) expect_products({15, 33, depth});
  });
}

TEST(MatmulKernel, EqualsTheDefinitionAcrossBlocks) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    expect_products({5, 3, 1030});    // depth of a block, and of a sum in registers
    expect_products({3, 1041, 5});    // columns of a block
    expect_products({211, 18, 257});  // rows of more tasks than one
  });
}

TEST(MatmulKernel, WithoutRowsOrColumnsNothingIsTouched) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    expect_products({0, 3, 4});
    expect_products({3, 0, 4});
  });
}

TEST(MatmulKernel, BitsDoNotDependOnTheNumberOfThreads) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    // The second: blocks of columns and of depth, whose panels follow each other in one buffer.
    for (const Sizes& sizes :
         {Sizes{211, 67, 300}, Sizes{31, 1041, 1030}, Sizes{5, 300, 40}, Sizes{1, 16, 16}})
      for (const Lie lie : {Lie::Rows, Lie::Columns})
        for (const bool add : {false, true}) {
          const Operands operands(sizes, lie, lie);
          const std::vector<float> one = product(operands, add, 1);
          for (const int threads : {2, 3, 7}) {
            const std::vector<float> more = product(operands, add, threads);
            EXPECT_EQ(std::memcmp(one.data(), more.data(), one.size() * sizeof(float)), 0)
                << threads;
          }
        }
  });
}

TEST(MatmulKernel, ScratchIsBoundedWhateverTheSizes) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    constexpr int64_t kBlock = int64_t{1} << 20, kThread = kBlock / 8;
    for (const int threads : {1, 2, 16})
      EXPECT_LE(matmul_scratch({1 << 20, 1 << 20, 1 << 20, threads}), kBlock + threads * kThread);
    EXPECT_LE(matmul_scratch({8, 8, 8, 1}), 1024);
  });
}

}  // namespace
}  // namespace lethe::kernels
