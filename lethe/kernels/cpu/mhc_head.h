#pragma once

#include <cstdint>

#include "lethe/kernels/cpu/mhc_site.h"

namespace lethe::kernels {

/// lethe/ops/mhc_head.h: y [T, D], mix [T, n], reciprocal root mean squares r [T]; contiguous. Each
/// token depends on itself only.
struct MhcHeadForward {
  MhcSite site;
  float *y, *mix, *r;
};

void mhc_head_forward(const MhcHeadForward& a);

/// Gradients from what forward returned in mix and r (model spec 3.4).
///   d_y [T, D] contiguous
///   d_x [T, n, D], d_fn [n, nD]: contiguous, nullptr where not wanted
///   d_base [n], d_scale [1]
struct MhcHeadBackward {
  MhcSite site;
  const float *mix, *r;
  const float* d_y;
  float *d_x, *d_fn, *d_base, *d_scale;
};

void mhc_head_backward(const MhcHeadBackward& a);

}  // namespace lethe::kernels
