#include "lethe/io/dtype.h"

#include <algorithm>
#include <array>

namespace lethe {
namespace {

struct DtypeRow {
  StoredDtype dtype;
  std::string_view name;
  int bits;
};

constexpr std::array<DtypeRow, 11> kDtypes{{
    {StoredDtype::F4, "F4", 4},
    {StoredDtype::U8, "U8", 8},
    {StoredDtype::I8, "I8", 8},
    {StoredDtype::F8E4M3, "F8_E4M3", 8},
    {StoredDtype::F8E8M0, "F8_E8M0", 8},
    {StoredDtype::F16, "F16", 16},
    {StoredDtype::BF16, "BF16", 16},
    {StoredDtype::I32, "I32", 32},
    {StoredDtype::F32, "F32", 32},
    {StoredDtype::F64, "F64", 64},
    {StoredDtype::I64, "I64", 64},
}};

constexpr std::array<std::string_view, 11> kRefused{"BOOL",
                                                    "F6_E2M3",
                                                    "F6_E3M2",
                                                    "F8_E5M2",
                                                    "F8_E4M3FNUZ",
                                                    "F8_E5M2FNUZ",
                                                    "I16",
                                                    "U16",
                                                    "U32",
                                                    "C64",
                                                    "U64"};

const DtypeRow& row(StoredDtype dtype) {
  return kDtypes[static_cast<size_t>(dtype)];
}

}  // namespace

std::string_view dtype_name(StoredDtype dtype) {
  return row(dtype).name;
}

int dtype_bits(StoredDtype dtype) {
  return row(dtype).bits;
}

std::optional<StoredDtype> dtype_from_name(std::string_view name) {
  for (const auto& entry : kDtypes)
    if (entry.name == name) return entry.dtype;
  return std::nullopt;
}

bool is_refused_dtype(std::string_view name) {
  return std::find(kRefused.begin(), kRefused.end(), name) != kRefused.end();
}

}  // namespace lethe
