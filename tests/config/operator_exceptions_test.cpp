#include "lethe/config/operator_exceptions.h"

#include "support/expect_error.h"
#include <gtest/gtest.h>

#include "lethe/base/error.h"

namespace lethe {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

TEST(OperatorExceptions, ArePairsInTheirOrder) {
  EXPECT_EQ(operator_exceptions(""), Pairs{});
  EXPECT_EQ(operator_exceptions("sparse_attention=none,rms_norm=fused,gate=auto"),
            (Pairs{{"sparse_attention", "none"}, {"rms_norm", "fused"}, {"gate", "auto"}}));
}

TEST(OperatorExceptions, AnotherFormNamesThePart) {
  for (const char* text :
       {"rms_norm", "rms_norm=", "=none", "gate=none,rms_norm=fast", "a=none,,b=none"})
    test::expect_error<ConfigError>([&] { static_cast<void>(operator_exceptions(text)); },
                                    {"[form]", "NAME=none"});
  test::expect_error<ConfigError>([] { static_cast<void>(operator_exceptions("gate=none,")); },
                                  {"comma"});
}

TEST(OperatorExceptions, AnOperatorIsNamedOnce) {
  test::expect_error<ConfigError>(
      [] { static_cast<void>(operator_exceptions("gate=none,gate=fused")); }, {"[once]", "gate"});
}

}  // namespace
}  // namespace lethe
