#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "lethe/plan/make_plan.h"

// A plan as JSON: to pin it, to share it, to look at it (spec 3 4.3, command-line spec 7.4). The
// file carries the shape of the model and its place in the pipeline, so that a plan of another
// model is refused. Everything in it is written out, nothing is implied.
namespace lethe {

/// The plan as JSON text, ending in a line break. Equal plans of equal subjects give equal bytes.
[[nodiscard]] std::string plan_text(const PlanSubject& subject, const RecomputePlan& plan);

/// Reads plan_text. where names the source in errors. Throws ConfigError with everything that is
/// malformed, missing or unknown; RecomputeError where the plan was made for another model or
/// stage, naming what differs, or breaks a static check (check_plan).
[[nodiscard]] RecomputePlan read_plan(std::string_view text,
                                      const PlanSubject& subject,
                                      std::string_view where);

/// Writes plan_text; the file is there whole or not at all. DataError with the path.
void save_plan(const std::filesystem::path& path,
               const PlanSubject& subject,
               const RecomputePlan& plan);

/// read_plan of a file. DataError where it cannot be read.
[[nodiscard]] RecomputePlan load_plan(const std::filesystem::path& path,
                                      const PlanSubject& subject);

/// SHA-256 of plan_text, 64 hexadecimal digits: for the run record, and for ranks to compare.
[[nodiscard]] std::string plan_hash(const PlanSubject& subject, const RecomputePlan& plan);

}  // namespace lethe
