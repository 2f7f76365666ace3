#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lethe/optim/groups.h"

namespace lethe {

/// One tensor of an optimizer's state, as a checkpoint stores it.
struct StateTensor {
  std::string parameter;  // contract name
  std::string kind;       // "exp_avg" | "exp_avg_sq" (AdamW), "momentum" (Muon), "master" (bf16)
  at::Tensor value;       // the parameter's shape; float64 for float64 parameters, else float32
};

/// Updates that a parameter has had (AdamW's bias correction counts them).
struct UpdateCount {
  std::string parameter;
  int64_t updates = 0;
};

/// AdamW and Muon over groups of parameters (model spec 12; formulas in kernels/cpu/adamw.h and
/// optim/muon.h).
///
/// State is made at construction, as ByteCategory::Optimizer, so that its bytes are the same before
/// the first step, after it and after a resume: AdamW two moments, Muon one momentum, and for a
/// bfloat16 parameter a float32 master copy, on which the update runs; the parameter is then the
/// master rounded to nearest even. Gradients of bfloat16 parameters are float32.
/// A parameter without a gradient keeps its value, state and count.
/// AdamW's bits do not depend on the thread count; Muon's are those of optim/muon.h.
class Optimizer final {
 public:
  /// Masters start from the parameters' values: fill those first, or call copy_masters().
  /// Throws what check(groups) throws.
  explicit Optimizer(std::vector<ParameterGroup> groups);
  ~Optimizer();
  Optimizer(Optimizer&&) noexcept;
  Optimizer& operator=(Optimizer&&) noexcept;

  /// Updates every parameter that has a gradient from grad_scale * .grad, at rate lr * lr_scale,
  /// and drops each gradient as soon as its parameter is updated: the update needs no memory beside
  /// Muon's workspace (kMuonWorkspaceBytes, or that of one matrix if larger) and a contiguous copy
  /// of one gradient that is not contiguous. grad_scale carries clipping. Gradients must be finite
  /// (grad_norm throws on those that are not).
  /// Throws DtypeError and ShapeError when a gradient does not fit its parameter, before any
  /// update.
  void step(double lr, double grad_scale = 1);

  /// Drops all gradients: their storage is free, and the next backward makes new ones.
  void drop_gradients();

  /// Starts every master anew from its parameter, after weights were written into the model.
  void copy_masters();

  [[nodiscard]] const std::vector<ParameterGroup>& groups() const { return groups_; }

  /// Bytes of the state: fixed at construction.
  [[nodiscard]] int64_t state_bytes() const;

  /// The state's own tensors (not copies), in the order of the groups, per parameter in the order
  /// of StateTensor's kinds.
  [[nodiscard]] std::vector<StateTensor> state() const;

  /// One per parameter, in the order of the groups.
  [[nodiscard]] std::vector<UpdateCount> update_counts() const;

  /// Copies a state in, in any order; parameters with a master become the rounded master.
  /// Throws CheckpointError naming what is missing, not wanted, twice, negative, or of another
  /// dtype or shape; then nothing has changed.
  void restore(const std::vector<StateTensor>& state, const std::vector<UpdateCount>& counts);

 private:
  struct Slot;

  std::vector<ParameterGroup> groups_;
  std::vector<Slot> slots_;  // one per parameter, in the order of the groups
};

}  // namespace lethe
