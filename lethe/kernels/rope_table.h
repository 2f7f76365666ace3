#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace lethe::kernels {

/// YaRN length extension of a rotary table (model spec 4.1).
struct RopeYarn {
  double factor;                   // F > 0
  int64_t original_max_positions;  // L0 > 0, tokens
  double beta_fast, beta_slow;     // rotations over L0 tokens, both > 0
};

/// The frequencies of a rotary table, [rope_dims / 2] radians per token:
///   w[m] = 1 / theta^(2m / rope_dims), with yarn then w/F * (1-s) + w * s, s = 1 - ramp
/// Every step is rounded to float32 in the written order: the last bit of w is part of the model
/// (an error of one ulp rotates by up to 0.03 at position 2^20).
/// Throws ConfigError: rope_dims must be even and positive, theta > 1, yarn as above.
/// Deterministic. Source: model spec 4.1.
std::vector<float> rope_inv_freq(int64_t rope_dims,
                                 double theta,
                                 const std::optional<RopeYarn>& yarn);

}  // namespace lethe::kernels
