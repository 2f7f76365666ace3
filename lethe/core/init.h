#pragma once

#include <cstdint>
#include <string_view>

namespace at {
class Tensor;
}

namespace lethe {

/// Fills `tensor` in place with N(0, std^2) numbers that depend only on (seed, name, element
/// index): the same bits for any thread count and any order of initialisation. `name` is the
/// parameter's contract name.
///   tensor  float32 | float64 | bfloat16 | float16, any device and strides; half types are rounded
///   from
///           float32. Not recorded by autograd.
///   std     >= 0
/// Throws DtypeError, and ConfigError for a meta tensor or a bad std.
/// Source: model spec 12.2; generator: base/random.h.
void normal_(const at::Tensor& tensor, double std, uint64_t seed, std::string_view name);

}  // namespace lethe
