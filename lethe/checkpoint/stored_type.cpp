#include "lethe/base/error.h"
#include "lethe/checkpoint/stored_type_impl.h"
#include "lethe/core/describe.h"

namespace lethe::detail {
namespace {

// The element types that both sides know as plain numbers.
constexpr std::pair<StoredDtype, at::ScalarType> kTypes[] = {{StoredDtype::F64, at::kDouble},
                                                             {StoredDtype::F32, at::kFloat},
                                                             {StoredDtype::BF16, at::kBFloat16},
                                                             {StoredDtype::F16, at::kHalf},
                                                             {StoredDtype::I64, at::kLong},
                                                             {StoredDtype::I32, at::kInt},
                                                             {StoredDtype::U8, at::kByte},
                                                             {StoredDtype::I8, at::kChar}};

}  // namespace

at::ScalarType tensor_type(const std::string& path, const StoredTensor& stored) {
  for (const auto& [on_disk, in_memory] : kTypes)
    if (on_disk == stored.dtype) return in_memory;
  fail<CheckpointError>(
      "{} [E-ST-DTYPE]: {} must hold plain numbers, got {}; dequantise the file first",
      path,
      stored.name,
      dtype_name(stored.dtype));
}

StoredDtype stored_type(const std::string& name, const at::Tensor& t) {
  for (const auto& [on_disk, in_memory] : kTypes)
    if (in_memory == t.scalar_type()) return on_disk;
  fail<DtypeError>("safetensors: {} must be of a type the format has, got {}; cast it first",
                   name,
                   dtype_text(t));
}

}  // namespace lethe::detail
