#pragma once

#include <string>

namespace at {
class Tensor;
}

namespace lethe {

/// "[2,260,64]", "[]" for a scalar, "none" for an undefined tensor: for error messages.
std::string shape_text(const at::Tensor& t);

/// "float32", "int64", ...: the spelling users know from Python.
std::string dtype_text(const at::Tensor& t);

}  // namespace lethe
