#pragma once

#include <string>

#include "lethe/train/run_record.h"

namespace lethe {

/// The line a person reads after a step:
///   step  120/800  loss 2.431  mtp 2.502  kl 0.0123  norm 0.83  5.12k tok/s  saved 34.2 MiB  peak
///   180 MiB  left 2m 10s
std::string progress_line(const StepReport& report, int64_t total_steps, double seconds_left);

}  // namespace lethe
