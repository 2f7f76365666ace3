#pragma once

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lethe/plan/make_plan.h"

// The parts of check_plan. Not installed.
namespace lethe::detail {

/// Violations under the name of one class.
class PlanFindings {
 public:
  PlanFindings(std::vector<std::string>& out, std::string where)
      : out_(out), where_(std::move(where)) {}

  template <class... Args>
  void add(const char* check, fmt::format_string<Args...> text, Args&&... args) {
    out_.push_back(fmt::format("recompute plan [{}] {}: {}",
                               check,
                               where_,
                               fmt::format(text, std::forward<Args>(args)...)));
  }

 private:
  std::vector<std::string>& out_;
  std::string where_;
};

/// One class of a plan beside what its layers do.
struct CheckedClass {
  const RecomputePlan& plan;
  const LayerPlan& layer;
  const LayerFlow& flow;
};

void check_shape(const CheckedClass& c, PlanFindings& found);        // SC0
void check_activations(const CheckedClass& c, PlanFindings& found);  // SC1 to SC6, SC12, R6.25
void check_regions(const CheckedClass& c, PlanFindings& found);      // SC5, SC7 to SC9, SC11
void check_stage(const PlanSubject& subject,
                 const std::vector<StageLayer>& layers,
                 const RecomputePlan& plan,
                 std::vector<std::string>& out);  // SC10, SC14, SC17

}  // namespace lethe::detail
