#include "lethe/base/text_numbers.h"

namespace lethe {

uint32_t TextNumbers::number_of(std::string_view text) {
  const std::lock_guard lock(mutex_);
  const auto found = numbers_.find(text);
  if (found != numbers_.end()) return found->second;
  const auto number = static_cast<uint32_t>(texts_.size());
  texts_.emplace_back(text);
  numbers_.emplace(text, number);
  return number;
}

std::string TextNumbers::text_of(uint32_t number) const {
  const std::lock_guard lock(mutex_);
  return texts_[number];
}

}  // namespace lethe
