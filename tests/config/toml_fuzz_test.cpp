#include <cstddef>
#include <cstdint>

#include "support/fuzz_replay.h"
#include <gtest/gtest.h>

extern "C" int toml_fuzz_entry(const uint8_t* data, size_t size);

namespace lethe {
namespace {

test::FuzzReplay replay() {
  return {"toml", toml_fuzz_entry, "[]{}=\"'#\n\\.,_-+0123456789eEtrufalsinx\xFF"};
}

TEST(TomlFuzz, TheCorpusIsFedWithoutACrash) {
  ASSERT_GE(replay().num_seeds(), 12u);
  replay().feed_corpus();
}

TEST(TomlFuzz, ManySeededMutationsAreRefusedOrReadSafely) {
  replay().feed_mutations(20'000);
}

}  // namespace
}  // namespace lethe
