#pragma once

#include "lethe/kernels/cpu/isa/vec.h"

// Inside cpu/isa/ only: the inner product of all matrix-like kernels. A tile of C stays in
// registers while k runs; B gives whole vectors, A single elements that are broadcast.
namespace lethe::kernels::LETHE_ISA {

/// The tile that fills the registers: 14 x 32 floats with AVX-512, 6 x 16 with AVX2, 6 x 8 else.
inline constexpr int kTileRows = kRegisters == 32 ? 14 : 6;
inline constexpr int kTileVecs = 2;
inline constexpr int kTileColumns = kTileVecs * kLanes;

/// sum += A B over k in ascending order, one fused multiply-add per element and step, in registers.
///   a  element (row, k) at a[row * a_row + k * a_k]
///   b  element (k, column) at b[k * b_k + column], Vecs * kLanes columns
/// With Ahead, step k also fetches the cache line of ahead[k * ahead_k] into the second cache: what
/// the next call reads comes while this one computes. Any address may be fetched.
template <int Rows, int Vecs, bool Ahead = false>
LETHE_INLINE void tile_sums(int64_t depth,
                            const float* __restrict a,
                            int64_t a_row,
                            int64_t a_k,
                            const float* __restrict b,
                            int64_t b_k,
                            Vec (&sum)[Rows][Vecs],
                            const float* ahead = nullptr,
                            int64_t ahead_k = 0) {
  for (int64_t k = 0; k < depth; ++k) {
    Vec right[Vecs];
#pragma GCC unroll 8
    for (int j = 0; j < Vecs; ++j) right[j] = load(b + j * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      const Vec left = broadcast(a[i * a_row]);
#pragma GCC unroll 8
      for (int j = 0; j < Vecs; ++j) sum[i][j] = fma(left, right[j], sum[i][j]);
    }
    a += a_k;
    b += b_k;
    if constexpr (Ahead) {
      __builtin_prefetch(ahead, 0, 2);
      ahead += ahead_k;
    }
  }
}

/// C = or += A B, with a, b and ahead as above; += adds the finished sum, so that sums over many
/// calls stay as exact as pairwise ones.
///   c  element (row, column) at c[row * c_row + column]
template <int Rows, int Vecs, bool Accumulate, bool Ahead = false>
LETHE_INLINE void tile(int64_t depth,
                       const float* __restrict a,
                       int64_t a_row,
                       int64_t a_k,
                       const float* __restrict b,
                       int64_t b_k,
                       float* __restrict c,
                       int64_t c_row,
                       const float* ahead = nullptr,
                       int64_t ahead_k = 0) {
  Vec sum[Rows][Vecs];
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < Vecs; ++j) sum[i][j] = Vec{};
  tile_sums<Rows, Vecs, Ahead>(depth, a, a_row, a_k, b, b_k, sum, ahead, ahead_k);
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < Vecs; ++j) {
      float* to = c + i * c_row + j * kLanes;
      store(to, Accumulate ? load(to) + sum[i][j] : sum[i][j]);
    }
}

}  // namespace lethe::kernels::LETHE_ISA
