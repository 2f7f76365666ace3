#include <cstddef>
#include <cstdint>

#include "support/fuzz_replay.h"
#include <gtest/gtest.h>

extern "C" int idx_fuzz_entry(const uint8_t* data, size_t size);
extern "C" int jsonl_fuzz_entry(const uint8_t* data, size_t size);

namespace lethe {
namespace {

test::FuzzReplay idx() {
  return {"idx", idx_fuzz_entry, std::string_view("\0\1\2\3\4\5\6\7\x08\x7f\x80\xff", 12)};
}

test::FuzzReplay jsonl() {
  return {"jsonl",
          jsonl_fuzz_entry,
          std::string_view("{}[]\":,0123456789-.eE\\ utnp\xC3\xA9\xFF\0", 31)};
}

TEST(IdxFuzz, TheCorpusIsFedWithoutACrash) {
  ASSERT_GE(idx().num_seeds(), 12u);
  idx().feed_corpus();
}

TEST(IdxFuzz, ManySeededMutationsAreRefusedOrReadSafely) {
  idx().feed_mutations(100'000);
}

TEST(JsonlFuzz, TheCorpusIsFedWithoutACrash) {
  ASSERT_GE(jsonl().num_seeds(), 12u);
  jsonl().feed_corpus();
}

TEST(JsonlFuzz, ManySeededMutationsAreRefusedOrReadSafely) {
  jsonl().feed_mutations(50'000);
}

}  // namespace
}  // namespace lethe
