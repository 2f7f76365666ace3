#pragma once

#include <cstdint>

#include "lethe/offload/swap_stats.h"

namespace at {
class Tensor;
}

namespace lethe {

/// Whether the bytes of this tensor may leave the device, by itself (spec 5 6.2): Swapped, or the
/// reason against it. Who else holds the storage and which layer it belongs to is not looked at.
/// A parameter is what the byte accounting counts as one; where it does not count the storage, a
/// leaf that requires a gradient. min_bytes: of the storage.
[[nodiscard]] SwapVerdict judge_tensor(const at::Tensor& t, int64_t min_bytes);

}  // namespace lethe
