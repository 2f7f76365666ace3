#include <cstddef>
#include <cstdint>

#include "support/fuzz_replay.h"
#include <gtest/gtest.h>

extern "C" int checkpoint_fuzz_entry(const uint8_t* data, size_t size);

namespace lethe {
namespace {

test::FuzzReplay manifests() {
  return {"checkpoint", checkpoint_fuzz_entry, "{}[]\":,0123456789-.eE\\ \n/utnp\xC3\xA9\xFF"};
}

TEST(CheckpointFuzz, TheCorpusIsFedWithoutACrash) {
  ASSERT_GE(manifests().num_seeds(), 10u);
  manifests().feed_corpus();
}

TEST(CheckpointFuzz, ManySeededMutationsAreRefusedOrReadBack) {
  manifests().feed_mutations(20'000);
}

}  // namespace
}  // namespace lethe
