#include "lethe/core/leaf_gradient.h"

#include <optional>

#include <ATen/core/Tensor.h>

#include "lethe/base/error.h"

namespace lethe {
namespace {

using GradientDtype = std::optional<at::ScalarType>;

template <class T>
concept NamesItsGradient = requires(const T& leaf) {
  leaf.set_grad_dtype(GradientDtype());
  { leaf.grad_dtype() } -> std::same_as<GradientDtype>;
};

// Templates, so that a LibTorch without the functions never sees the calls.
template <class T>
void name_float32(const T& leaf) {
  if constexpr (NamesItsGradient<T>) leaf.set_grad_dtype(GradientDtype(at::kFloat));
}

template <class T>
bool names_float32(const T& leaf) {
  if constexpr (NamesItsGradient<T>) return leaf.grad_dtype() == GradientDtype(at::kFloat);
  return false;
}

}  // namespace

bool has_leaf_gradient_dtype() {
  return NamesItsGradient<at::Tensor>;
}

void keep_float32_gradient(const at::Tensor& leaf) {
  LETHE_CHECK(ConfigError,
              has_leaf_gradient_dtype(),
              "bfloat16 weights: LibTorch must be 2.10 or newer, got an older one, which rounds "
              "their gradients; train with float32 weights, or build against a newer LibTorch");
  name_float32(leaf);
}

bool keeps_float32_gradient(const at::Tensor& leaf) {
  return names_float32(leaf);
}

}  // namespace lethe
