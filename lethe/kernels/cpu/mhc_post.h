#pragma once

#include <cstdint>

#include "lethe/kernels/cpu/parallel.h"

namespace lethe::kernels {

/// The operands of lethe/ops/mhc_post.h: y [T, D], post [T, n], comb [T, n, n] contiguous; the
/// streams x [T, n, D] with any strides of tokens and streams (0 allowed), their last one dense.
struct MhcPost {
  Parallel parallel;
  int64_t tokens, streams, width;
  int64_t token_stride, stream_stride;  // of x, in floats
  const float *y, *x, *post, *comb;
};

/// out [T, n, D] contiguous.
struct MhcPostForward {
  MhcPost in;
  float* out;
};

void mhc_post_forward(const MhcPostForward& a);

/// d_out [T, n, D] contiguous; d_y, d_x, d_post, d_comb like y, out, post, comb, nullptr where not
/// wanted. Tokens are independent: no sum crosses them (model spec 3.4).
struct MhcPostBackward {
  MhcPost in;
  const float* d_out;
  float *d_y, *d_x, *d_post, *d_comb;
};

void mhc_post_backward(const MhcPostBackward& a);

}  // namespace lethe::kernels
