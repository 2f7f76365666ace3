#pragma once

#include <string>
#include <vector>

#include "lethe/plan/make_plan.h"
#include "lethe/plan/save_targets.h"
#include "lethe/plan/saved_bytes.h"

// Plans and save units as tables for people. Pure.
namespace lethe {

/// One class of a plan.
struct ClassSummary {
  std::string layers;       // "L0-L1, L3"
  std::string name;         // "main/ratio4 csa"
  int64_t freed_bytes = 0;  // by the regions of one layer in one micro-batch
  bool operator==(const ClassSummary&) const = default;
};

/// The classes in the order of their first layer.
[[nodiscard]] std::vector<ClassSummary> plan_summary(const PlanSubject& subject,
                                                     const RecomputePlan& plan,
                                                     const MicroBatchShape& shape);

/// What every layer does and what each class frees in one micro-batch of this shape:
///   L0-L1, L3  main/ratio4 csa
///     sparse           G5   frees     8192 B  keeps        0 B
///   MTP0  mtp/window full save=experts
///     layer                 frees     8192 B  keeps     4096 B
///     experts          unit                   keeps     1024 B  lethe::experts, lethe::swiglu_mlp
///   note: ...
/// and a line for a swapped input. keeps: outputs that a later reader holds, and what a save unit
/// keeps inside of a layer that is recomputed whole. A region that frees nothing is marked with the
/// nodes that save its output. Ends in a line break; "nothing is recomputed or swapped" for an
/// empty plan.
[[nodiscard]] std::string plan_report(const PlanSubject& subject,
                                      const RecomputePlan& plan,
                                      const MicroBatchShape& shape);

/// One line per unit of the model: what it is made of, whether that exists here, and the layers
/// that have it.
///   attn         operator  lethe::sparse_attention  L0-L3, MTP0
[[nodiscard]] std::string units_report(const PlanSubject& subject,
                                       const SaveTargetMap& map,
                                       const SaveNames& names);

/// The same for programs: {"model_type": T, "units": [{"unit": "attn", "kind": "operator",
/// "names": [...], "missing": [...], "layers": "L0-L3, MTP0"}, ...]}. Ends in a line break.
[[nodiscard]] std::string units_json(const PlanSubject& subject,
                                     const SaveTargetMap& map,
                                     const SaveNames& names);

}  // namespace lethe
