#include <cstring>

#include <fmt/ranges.h>

#include "lethe/recompute/operator_log_impl.h"
#include "lethe/recompute/tensor_meta_impl.h"

namespace lethe {

TensorMeta::TensorMeta(const at::Tensor& t) : dtype(t.scalar_type()), device(t.device()) {
  sizes.assign(t.sizes().begin(), t.sizes().end());
  if (!t.has_storage() || t.layout() != at::kStrided) return;
  strides.assign(t.strides().begin(), t.strides().end());
  offset = t.storage_offset();
}

std::string TensorMeta::text() const {
  return fmt::format("[{}] {} on {}, strides [{}], offset {}",
                     fmt::join(sizes, ","),
                     c10::toString(dtype),
                     device.str(),
                     fmt::join(strides, ","),
                     offset);
}

bool is_plain_strided(const at::Tensor& t) {
  return t.layout() == at::kStrided && t.has_storage() && !t.is_quantized() && !t.is_conj() &&
         !t.is_neg();
}

const c10::StorageImpl* storage_of(const at::Tensor& t) {
  return t.defined() && t.has_storage() ? t.storage().unsafeGetStorageImpl() : nullptr;
}

WeakStorage weak_storage_of(const at::Tensor& t) {
  if (storage_of(t) == nullptr) return WeakStorage(c10::intrusive_ptr<c10::StorageImpl>());
  return t.storage().getWeakStorageImpl();
}

uint32_t version_of(const at::Tensor& t) {
  return t.is_inference() ? 0 : static_cast<uint32_t>(t._version());
}

at::Tensor tensor_over(c10::Storage storage, c10::DispatchKeySet keys, const TensorMeta& meta) {
  auto t = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, std::move(storage), keys, c10::scalarTypeToTypeMeta(meta.dtype));
  t.unsafeGetTensorImpl()->set_sizes_and_strides(meta.sizes, meta.strides, meta.offset);
  return t;
}

uint64_t hash_values(const at::Tensor& t) {
  const NoteOperators unnoted(nullptr);
  const at::NoGradGuard no_grad;
  const at::Tensor packed = t.contiguous().cpu();
  const auto* bytes = static_cast<const unsigned char*>(packed.const_data_ptr());
  const size_t n = packed.nbytes();
  constexpr uint64_t kPrime = 0x9E3779B97F4A7C15;
  uint64_t hash = n;
  for (size_t i = 0; i < n; i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + i, std::min(sizeof(word), n - i));
    hash = (hash ^ word) * kPrime;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace lethe
