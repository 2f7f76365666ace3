#pragma once

#include <cstdint>

namespace lethe {

/// Makes this process ready for tensors: exact byte accounting, and `threads` CPU threads (0 = as
/// many as LibTorch chooses). Call it once, before the first tensor.
void prepare_runtime(int64_t threads);

}  // namespace lethe
