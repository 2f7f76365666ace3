#pragma once

#include <cstdint>
#include <vector>

#include "lethe/optim/groups.h"

namespace lethe {

/// AdamW with decoupled weight decay and bias correction (kernels/cpu/adamw.h has the formula).
/// A parameter's moments m, v (its dtype, its size) are made at its first update, as
/// ByteCategory::Optimizer; a parameter that never has a gradient owns no state and never changes.
/// Bias correction counts the updates of each parameter. Bits do not depend on the thread count.
/// Source: model spec 12.
class AdamW final {
 public:
  /// Throws what check(groups) throws.
  explicit AdamW(std::vector<ParameterGroup> groups);
  ~AdamW();
  AdamW(AdamW&&) noexcept;
  AdamW& operator=(AdamW&&) noexcept;

  /// Updates every parameter that has a gradient from grad_scale * .grad, at rate lr * lr_scale.
  /// grad_scale carries clipping and the mean over accumulated microbatches. .grad stays as it is.
  /// Throws DtypeError and ShapeError when a gradient differs from its parameter, before any
  /// update.
  void step(double lr, double grad_scale = 1);

  /// Drops all gradients: their storage is free, and the next backward makes new ones.
  void drop_gradients();

  [[nodiscard]] const std::vector<ParameterGroup>& groups() const { return groups_; }

  /// Bytes of all moments made so far.
  [[nodiscard]] int64_t state_bytes() const;

 private:
  struct Moments;

  std::vector<ParameterGroup> groups_;
  std::vector<Moments> moments_;  // one per parameter, in the order of the groups
};

}  // namespace lethe
