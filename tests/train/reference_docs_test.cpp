#include "lethe/train/reference_docs.h"

#include <gtest/gtest.h>

#include "lethe/io/atomic_file.h"

namespace lethe {
namespace {

TEST(ReferenceDocs, TheCommittedPagesAreTheOnesTheProgramPrints) {
  for (const auto& [name, text] : reference_pages())
    EXPECT_EQ(text, read_text_file(std::string(LETHE_SOURCE_DIR) + "/docs/reference/" + name))
        << name << " is out of date; run `make docs`";
}

}  // namespace
}  // namespace lethe
