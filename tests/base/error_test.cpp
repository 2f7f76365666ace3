#include "lethe/base/error.h"

#include <string>

#include <gtest/gtest.h>

namespace lethe {
namespace {

TEST(Error, EveryKindCarriesItsNameAndExitCode) {
  EXPECT_STREQ(ConfigError("x").kind(), "ConfigError");
  EXPECT_EQ(ConfigError("x").code(), 2);
  EXPECT_EQ(ShapeError("x").code(), 2);
  EXPECT_EQ(DtypeError("x").code(), 2);
  EXPECT_EQ(RecomputeError("x").code(), 2);
  EXPECT_EQ(SwapError("x").code(), 2);
  EXPECT_EQ(OutOfArena("x").code(), 3);
  EXPECT_EQ(DataError("x").code(), 4);
  EXPECT_EQ(CheckpointError("x").code(), 4);
  EXPECT_EQ(CommError("x").code(), 5);
  EXPECT_EQ(NumericError("x").code(), 6);
  EXPECT_EQ(InternalError("x").code(), 7);
}

TEST(Error, ACheckFormatsItsValuesAndPassesSilently) {
  EXPECT_NO_THROW(LETHE_CHECK(ShapeError, 1 + 1 == 2, "never {}", 1));
  try {
    LETHE_CHECK(ShapeError, false, "x: must be {}, got {}", 2, 3);
    FAIL() << "no error";
  } catch (const ShapeError& error) {
    EXPECT_STREQ(error.what(), "x: must be 2, got 3");
  }
}

TEST(Error, AnInternalErrorNamesItsCallerAndAsksForAReport) {
  int line = 0;
  try {
    line = __LINE__ + 1;
    fail_internal("slots must be sorted");
  } catch (const InternalError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("error_test.cpp:" + std::to_string(line)), std::string::npos) << text;
    EXPECT_NE(text.find("please report"), std::string::npos) << text;
  }
  EXPECT_GT(line, 0);
}

}  // namespace
}  // namespace lethe
