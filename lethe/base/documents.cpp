#include "lethe/base/documents.h"

#include <algorithm>

#include "lethe/base/error.h"

namespace lethe {

Documents::Documents(std::span<const int32_t> cu_seqlens)
    : starts_(cu_seqlens.begin(), cu_seqlens.end()) {
  LETHE_CHECK(ShapeError,
              starts_.size() >= 2 && starts_.front() == 0,
              "cu_seqlens: must have at least two entries and begin with 0, got {} entries{}; pass "
              "[0, length] for one document",
              starts_.size(),
              starts_.empty() ? std::string() : fmt::format(" beginning with {}", starts_.front()));
  for (size_t i = 1; i < starts_.size(); ++i)
    LETHE_CHECK(ShapeError,
                starts_[i] > starts_[i - 1],
                "cu_seqlens: must increase strictly, got [{}] = {} after {}; drop empty documents "
                "before packing",
                i,
                starts_[i],
                starts_[i - 1]);
}

Documents Documents::from_lengths(std::span<const int64_t> lengths) {
  std::vector<int32_t> cu{0};
  int64_t total = 0;
  for (const int64_t n : lengths) {
    total += n;
    LETHE_CHECK(
        ShapeError,
        n >= 1 && total <= INT32_MAX,
        "documents: each length must be >= 1 and their sum < 2^31, got length {} and sum {}",
        n,
        total);
    cu.push_back(static_cast<int32_t>(total));
  }
  return Documents(cu);
}

int64_t Documents::longest() const {
  int64_t longest = 0;
  for (int64_t d = 0; d < count(); ++d) longest = std::max(longest, length(d));
  return longest;
}

std::vector<int64_t> Documents::positions() const {
  std::vector<int64_t> out;
  out.reserve(static_cast<size_t>(tokens()));
  for (int64_t d = 0; d < count(); ++d)
    for (int64_t p = 0; p < length(d); ++p) out.push_back(p);
  return out;
}

std::vector<int32_t> Documents::cu_slots(int64_t ratio) const {
  LETHE_CHECK(ShapeError, ratio >= 2, "documents: a slot ratio must be >= 2, got {}", ratio);
  std::vector<int32_t> cu{0};
  for (int64_t d = 0; d < count(); ++d)
    cu.push_back(static_cast<int32_t>(cu.back() + length(d) / ratio));
  return cu;
}

std::vector<int64_t> Documents::slot_positions(int64_t ratio) const {
  const auto cu = cu_slots(ratio);
  std::vector<int64_t> out;
  out.reserve(static_cast<size_t>(cu.back()));
  for (size_t d = 0; d + 1 < cu.size(); ++d)
    for (int64_t j = 0; j < cu[d + 1] - cu[d]; ++j) out.push_back(j * ratio);
  return out;
}

}  // namespace lethe
