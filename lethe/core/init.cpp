#include "lethe/core/init.h"

#include <cmath>

#include "lethe/base/error.h"
#include "lethe/base/random.h"
#include "lethe/core/describe.h"

namespace lethe {
namespace {

template <class T>
void fill(const at::Tensor& host, double std, uint64_t key) {
  fill_normal(
      std::span<T>(host.mutable_data_ptr<T>(), static_cast<size_t>(host.numel())), std, key);
}

}  // namespace

void normal_(const at::Tensor& tensor, double std, uint64_t seed, std::string_view name) {
  LETHE_CHECK(DtypeError,
              tensor.is_floating_point(),
              "init: '{}' must be floating, got {}; integer tensors have their own tables",
              name,
              dtype_text(tensor));
  LETHE_CHECK(ConfigError,
              !tensor.is_meta(),
              "init: '{}' must have storage, got a meta tensor; construct the model on a device",
              name);
  LETHE_CHECK(ConfigError,
              std::isfinite(std) && std >= 0,
              "init: the standard deviation of '{}' must be >= 0, got {}; check init_range",
              name,
              std);
  const at::NoGradGuard no_grad;
  const bool is_double = tensor.scalar_type() == at::kDouble;
  const at::ScalarType dtype = is_double ? at::kDouble : at::kFloat;
  const bool in_place = tensor.is_cpu() && tensor.is_contiguous() && tensor.scalar_type() == dtype;
  const at::Tensor host = in_place ? tensor : at::empty(tensor.sizes(), dtype);
  const uint64_t key = stream_key(seed, name);
  is_double ? fill<double>(host, std, key) : fill<float>(host, std, key);
  if (!in_place) tensor.copy_(host);
}

}  // namespace lethe
