#pragma once

#include <initializer_list>
#include <string>

#include <gtest/gtest.h>

namespace lethe::test {

/// `f` throws E, and its message contains every part: what was wrong, the rule, the value, the way
/// out.
template <class E, class F>
void expect_error(F f, std::initializer_list<const char*> parts) {
  try {
    f();
  } catch (const E& error) {
    for (const char* part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "'" << part << "' is missing in: " << error.what();
    return;
  }
  ADD_FAILURE() << "nothing was thrown";
}

}  // namespace lethe::test
