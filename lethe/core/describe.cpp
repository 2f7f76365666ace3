#include "lethe/core/describe.h"

#include <fmt/ranges.h>

namespace lethe {

std::string shape_text(const at::Tensor& t) {
  return t.defined() ? fmt::format("[{}]", fmt::join(t.sizes(), ",")) : "none";
}

std::string dtype_text(const at::Tensor& t) {
  if (!t.defined()) return "none";
  switch (t.scalar_type()) {
    case at::kFloat:
      return "float32";
    case at::kDouble:
      return "float64";
    case at::kBFloat16:
      return "bfloat16";
    case at::kHalf:
      return "float16";
    case at::kInt:
      return "int32";
    case at::kLong:
      return "int64";
    case at::kByte:
      return "uint8";
    case at::kBool:
      return "bool";
    default:
      return c10::toString(t.scalar_type());
  }
}

}  // namespace lethe
