#include "lethe/base/text_numbers.h"

#include <gtest/gtest.h>

namespace lethe {
namespace {

TEST(TextNumbers, EqualTextsHaveEqualNumbersAndTheEmptyTextIsZero) {
  TextNumbers names;
  const uint32_t a = names.number_of("aten::mul"), b = names.number_of("aten::add");
  EXPECT_NE(a, b);
  EXPECT_EQ(names.number_of("aten::mul"), a);
  EXPECT_EQ(names.text_of(b), "aten::add");
  EXPECT_EQ(names.number_of(""), 0U);
  EXPECT_EQ(names.text_of(0), "");
}

}  // namespace
}  // namespace lethe
