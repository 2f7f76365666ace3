#include "lethe/data/show_tokens.h"

#include <string>
#include <vector>

#include "data/small_tokenizer.h"
#include "support/expect_error.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lethe/base/error.h"

namespace lethe {
namespace {

std::string shown(const Tokenizer& tokenizer, const std::string& text, TokenListing listing) {
  std::vector<int32_t> ids;
  tokenizer.encode(text, ids);
  return show_tokens(tokenizer, ids, listing);
}

TEST(ShowTokens, ATableAlignsIdsAndEndsInCounts) {
  const auto tokenizer =
      Tokenizer::from_json(test::small_tokenizer({{"a", "b"}, {"ab", "c"}}).dump(), "t.json");
  EXPECT_EQ(shown(tokenizer, "abc\nab", TokenListing::Table),
            "    id  bytes\n"
            "   257  \"abc\"\n"
            "    10  \"\\n\"\n"
            "   256  \"ab\"\n"
            "6 bytes, 3 tokens, 2.00 bytes per token\n");
  EXPECT_EQ(shown(tokenizer, "", TokenListing::Table), "    id  bytes\n0 bytes, 0 tokens\n");
}

TEST(ShowTokens, IdsAreOneLine) {
  EXPECT_EQ(shown(Tokenizer::bytes(), "a b", TokenListing::Ids), "97 32 98\n");
  EXPECT_EQ(shown(Tokenizer::bytes(), "", TokenListing::Ids), "\n");
}

TEST(ShowTokens, JsonIsOneLineWithIdsAndPieces) {
  const std::string line = shown(Tokenizer::bytes(), "a\n\xFF", TokenListing::Json);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto parsed = nlohmann::json::parse(line);
  EXPECT_EQ(parsed["bytes"], 3);
  EXPECT_EQ(parsed["tokens"], 3);
  EXPECT_EQ(parsed["ids"], (nlohmann::json{97, 10, 255}));
  EXPECT_EQ(parsed["pieces"], (nlohmann::json{"a", "\\n", "\\xFF"}));
}

TEST(ShowTokens, BytesAreQuotedSoThatNothingIsHidden) {
  EXPECT_EQ(quoted_bytes("a\t\r\n\"\\"), R"("a\t\r\n\"\\")");
  EXPECT_EQ(quoted_bytes(std::string("\0\x1B\x7F", 3)), R"("\x00\x1B\x7F")");
  EXPECT_EQ(quoted_bytes("\xE4\xBD\xA0\xF0\x9F\x98\x80"), "\"\xE4\xBD\xA0\xF0\x9F\x98\x80\"");
  EXPECT_EQ(quoted_bytes("\xE4\xBD"), R"("\xE4\xBD")");  // half a character
  EXPECT_EQ(quoted_bytes("a\xFF"
                         "b"),
            R"("a\xFFb")");
  EXPECT_EQ(quoted_bytes("\xC2\x85\xE2\x80\x8D\xE2\x80\xAE\xEF\xBB\xBF"),
            R"("\xC2\x85\xE2\x80\x8D\xE2\x80\xAE\xEF\xBB\xBF")");
}

TEST(ShowTokens, AnIdThatIsNoTokenIsRefused) {
  test::expect_error<DataError>(
      [] { (void)show_tokens(Tokenizer::bytes(), std::vector<int32_t>{256}, TokenListing::Table); },
      {"E-TOK-RANGE", "256"});
}

}  // namespace
}  // namespace lethe
