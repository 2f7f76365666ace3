#include "lethe/offload/swappable.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "lethe/core/byte_accounting.h"

namespace lethe {
namespace {

bool is_parameter(const at::Tensor& t) {
  if (const auto category = category_of(t))
    return *category != ByteCategory::Activations && *category != ByteCategory::Temporaries;
  return t.is_leaf() && t.requires_grad();
}

// Every byte of the storage belongs to an element of the tensor, so nobody else's values go with
// it. An expanded tensor (stride 0) may be larger than its storage.
bool covers_storage(const at::Tensor& t) {
  int64_t elements = 1, span = 1;
  for (int64_t d = 0; d < t.dim(); ++d) {
    if (t.stride(d) == 0) continue;
    elements *= t.size(d);
    span += (t.size(d) - 1) * t.stride(d);
  }
  const auto bytes = static_cast<size_t>(elements) * t.element_size();
  return t.storage_offset() == 0 && elements == span && bytes == t.storage().nbytes();
}

}  // namespace

SwapVerdict judge_tensor(const at::Tensor& t, int64_t min_bytes) {
  if (!t.defined() || !t.has_storage() || t.is_meta()) return SwapVerdict::Absent;
  if (!at::GradMode::is_enabled()) return SwapVerdict::NoGrad;
  const c10::Storage& storage = t.storage();
  if (storage.nbytes() == 0) return SwapVerdict::Empty;
  if (!at::isFloatingType(t.scalar_type())) return SwapVerdict::NotFloating;
  if (is_parameter(t)) return SwapVerdict::Parameter;
  if (static_cast<int64_t>(storage.nbytes()) < min_bytes) return SwapVerdict::Small;
  if (!covers_storage(t)) return SwapVerdict::Slice;
  if (!storage.resizable()) return SwapVerdict::Foreign;
  return SwapVerdict::Swapped;
}

}  // namespace lethe
