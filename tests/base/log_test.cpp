#include "lethe/base/log.h"

#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace lethe {
namespace {

TEST(Log, LinesGoToStandardErrorWithTheirLevel) {
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  log_info("step {} of {}", 3, 20);
  log_warn("--seed has no effect: {{fixed}}");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "info: step 3 of 20\nwarning: --seed has no effect: {fixed}\n");
}

TEST(Log, LinesOfSeveralThreadsStayWhole) {
  testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([] {
      for (int i = 0; i < 50; ++i) log_info("{}", std::string(200, 'x'));
    });
  for (auto& thread : threads) thread.join();
  std::istringstream lines(testing::internal::GetCapturedStderr());
  const std::string expected = "info: " + std::string(200, 'x');
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) ASSERT_EQ(line, expected);
  EXPECT_EQ(count, 200);
}

}  // namespace
}  // namespace lethe
