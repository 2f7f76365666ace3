#include "lethe/base/format.h"

#include <cmath>
#include <cstdint>

#include <gtest/gtest.h>

namespace lethe {
namespace {

TEST(Format, BytesUsePowersOf1024AndThreeDigits) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1024), "1.00 KiB");
  EXPECT_EQ(bytes_text(1310720), "1.25 MiB");
  EXPECT_EQ(bytes_text(12 * 1024 * 1024 + 512 * 1024), "12.5 MiB");
  EXPECT_EQ(bytes_text(159609485896), "149 GiB");
  EXPECT_EQ(bytes_text(-3 * (INT64_C(1) << 30)), "-3.00 GiB");
  EXPECT_EQ(bytes_text(INT64_MAX), "8192 PiB");
}

TEST(Format, RoundingNeverPrintsAFullUnit) {
  EXPECT_EQ(bytes_text((INT64_C(1) << 20) - 1), "1.00 MiB");  // not "1024 KiB"
  EXPECT_EQ(bytes_text(1000 * 1024), "1000 KiB");
  EXPECT_EQ(count_text(999999), "1.00M");  // not "1000k"
}

TEST(Format, DurationsShowTheTwoLargestUnits) {
  EXPECT_EQ(duration_text(0.42), "0.42s");
  EXPECT_EQ(duration_text(12.34), "12.3s");
  EXPECT_EQ(duration_text(59.99), "1m 00s");
  EXPECT_EQ(duration_text(192), "3m 12s");
  EXPECT_EQ(duration_text(2 * 3600 + 5 * 60 + 59), "2h 05m");
  EXPECT_EQ(duration_text(3 * 86400 + 4 * 3600), "3d 04h");
  EXPECT_EQ(duration_text(NAN), "?");
  EXPECT_EQ(duration_text(INFINITY), "?");
}

TEST(Format, CountsUsePowersOf1000) {
  EXPECT_EQ(count_text(0), "0");
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(count_text(12.34), "12.3");
  EXPECT_EQ(count_text(1250), "1.25k");
  EXPECT_EQ(count_text(284e9), "284B");
  EXPECT_EQ(count_text(-1.5e6), "-1.50M");
  EXPECT_EQ(count_text(NAN), "?");
}

}  // namespace
}  // namespace lethe
