#pragma once

#include <string>

#include "lethe/plan/make_plan.h"
#include "lethe/plan/save_targets.h"
#include "lethe/plan/saved_bytes.h"

// Plans and save units as tables for people. Pure.
namespace lethe {

/// What every layer does and what each class frees in one micro-batch of these sizes:
///   L0-L1, L3  main/ratio4 csa
///     sparse           G5   frees     8192 B  keeps        0 B
///   note: ...
/// A region that frees nothing is marked with the nodes that save its output. Ends in a line break;
/// "nothing is recomputed" for an empty plan.
[[nodiscard]] std::string plan_report(const PlanSubject& subject,
                                      const RecomputePlan& plan,
                                      const ActivationSizes& sizes);

/// One line per unit of the model: what it is made of and whether that exists here.
///   attn        operator   lethe::sparse_attention
[[nodiscard]] std::string units_report(const SaveTargetMap& map, const SaveNames& names);

}  // namespace lethe
