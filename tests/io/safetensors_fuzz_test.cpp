#include <cstddef>
#include <cstdint>

#include "support/fuzz_replay.h"
#include <gtest/gtest.h>

extern "C" int safetensors_fuzz_entry(const uint8_t* data, size_t size);

namespace lethe {
namespace {

test::FuzzReplay replay() {
  return {"safetensors", safetensors_fuzz_entry, "{}[]\":,0123456789-.eE\\ aFIU_\xFF"};
}

TEST(SafetensorsFuzz, TheCorpusIsFedWithoutACrash) {
  ASSERT_GE(replay().num_seeds(), 12u);
  replay().feed_corpus();
}

TEST(SafetensorsFuzz, ManySeededMutationsAreRefusedOrReadSafely) {
  replay().feed_mutations(100'000);
}

}  // namespace
}  // namespace lethe
