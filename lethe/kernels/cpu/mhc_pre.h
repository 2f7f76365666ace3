#pragma once

#include <cstdint>

#include "lethe/kernels/cpu/mhc_site.h"

namespace lethe::kernels {

/// lethe/ops/mhc_pre.h: u [T, D], post [T, n], comb [T, n, n], pre [T, n], mix [T, (2 + n) n] and
/// the reciprocal root mean squares r [T]; all contiguous. Each token depends on itself only.
struct MhcPreForward {
  MhcSite site;
  int64_t iterations;
  float *u, *post, *comb, *pre, *mix, *r;
};

void mhc_pre_forward(const MhcPreForward& a);

/// Gradients from what forward returned in mix and r (model spec 3.4).
///   d_u [T, D], d_post [T, n], d_comb [T, n, n]: contiguous, nullptr where no gradient arrived
///   d_x [T, n, D], d_fn [(2 + n) n, nD]: contiguous, nullptr where not wanted
///   d_base [(2 + n) n], d_scale [3]
struct MhcPreBackward {
  MhcSite site;
  int64_t iterations;
  const float *mix, *r;
  const float *d_u, *d_post, *d_comb;
  float *d_x, *d_fn, *d_base, *d_scale;
};

void mhc_pre_backward(const MhcPreBackward& a);

}  // namespace lethe::kernels
