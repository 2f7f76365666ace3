#include "lethe/data/tokenizer.h"

#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "data/small_tokenizer.h"
#include "support/expect_error.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lethe/base/error.h"
#include "lethe/io/checksum.h"

namespace lethe {
namespace {

using nlohmann::json;
using test::expect_error;
using test::letter;
using test::small_tokenizer;
using Ids = std::vector<int32_t>;

Tokenizer load(const json& file) {
  return Tokenizer::from_json(file.dump(), "t.json");
}

Ids encode(const Tokenizer& tokenizer, std::string_view text) {
  Ids ids;
  tokenizer.encode(text, ids);
  return ids;
}

// The texts of the tokens one after another, "a|b|c".
std::string cut(const Tokenizer& tokenizer, std::string_view text) {
  std::string out;
  for (const int32_t id : encode(tokenizer, text))
    out += (out.empty() ? "" : "|") + tokenizer.token_bytes(id);
  return out;
}

// One Split per expression, then ByteLevel without its own.
json with_splits(json file, std::initializer_list<const char*> expressions) {
  auto parts = json::array();
  for (const char* expression : expressions)
    parts.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", expression}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  parts.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
  file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", parts}};
  return file;
}

json added(int id, const char* content, bool normalized = false) {
  return {{"id", id},
          {"content", content},
          {"single_word", false},
          {"lstrip", false},
          {"rstrip", false},
          {"normalized", normalized},
          {"special", !normalized}};
}

// `change` applied to a file that is accepted makes one that is refused with these words.
template <class Change>
void refused(Change change, std::initializer_list<const char*> parts) {
  json file = with_splits(small_tokenizer({{"a", "b"}}), {"\\s+"});
  file["added_tokens"] = {added(300, "<x>")};
  load(file);
  change(file);
  expect_error<DataError>([&] { load(file); }, parts);
}

TEST(Tokenizer, BytesAreTheirOwnIds) {
  const Tokenizer tokenizer = Tokenizer::bytes();
  const std::string text("a\0\xff", 3);
  EXPECT_EQ(encode(tokenizer, text), (Ids{97, 0, 255}));
  EXPECT_EQ(tokenizer.decode(Ids{97, 0, 255}), text);
  EXPECT_EQ(tokenizer.vocab_size(), 256);
  EXPECT_EQ(tokenizer.fingerprint(), "bytes");
  EXPECT_EQ(tokenizer.find("a"), 97);
  EXPECT_EQ(tokenizer.find("ab"), std::nullopt);
  expect_error<DataError>([&] { (void)tokenizer.decode(Ids{256}); }, {"E-TOK-RANGE", "256"});
}

TEST(Tokenizer, EncodingAppends) {
  Ids ids{7};
  Tokenizer::bytes().encode("a", ids);
  load(small_tokenizer({})).encode("b", ids);
  EXPECT_EQ(ids, (Ids{7, 97, 98}));
}

TEST(Tokenizer, TheLowestRankMergesFirstAndOfEqualOnesTheLeftmost) {
  EXPECT_EQ(cut(load(small_tokenizer({{"b", "c"}, {"a", "b"}})), "abc"), "a|bc");
  EXPECT_EQ(cut(load(small_tokenizer({{"a", "b"}, {"b", "c"}})), "abc"), "ab|c");
  EXPECT_EQ(cut(load(small_tokenizer({{"a", "a"}})), "aaaaa"), "aa|aa|a");
  EXPECT_EQ(cut(load(small_tokenizer({{"a", "a"}, {"aa", "aa"}})), "aaaaaaa"), "aaaa|aa|a");
}

TEST(Tokenizer, AMergeMadeByMergesMayComeBeforeThemInRank) {
  EXPECT_EQ(
      cut(load(small_tokenizer({{"c", "d"}, {"a", "b"}, {"ab", "cd"}, {"cd", "e"}})), "abcde"),
      "abcd|e");
}

TEST(Tokenizer, BothSpellingsOfMergesAreRead) {
  json file = small_tokenizer({{"a", "b"}, {"ab", "c"}});
  file["model"]["merges"] = json::array({json::array({"a", "b"}), json::array({"ab", "c"})});
  EXPECT_EQ(cut(load(file), "abcab"), "abc|ab");
}

TEST(Tokenizer, IgnoreMergesTakesAWordThatIsAnEntryAsItIs) {
  json file = with_splits(small_tokenizer({{"a", "b"}}), {" "});
  file["model"]["vocab"]["xyz"] = 400;
  EXPECT_EQ(cut(load(file), "xyz ab xyzz"), "x|y|z| |ab| |x|y|z|z");
  file["model"]["ignore_merges"] = true;
  EXPECT_EQ(cut(load(file), "xyz ab xyzz"), "xyz| |ab| |x|y|z|z");
}

TEST(Tokenizer, MergesDoNotLeaveThePiecesOfTheSplits) {
  const json file = small_tokenizer({{"1", "2"}, {"2", "a"}, {"a", "b"}, {"b", "1"}});
  EXPECT_EQ(cut(load(with_splits(file, {})), "12ab12"), "12|ab|12");
  EXPECT_EQ(cut(load(with_splits(file, {"\\p{N}"})), "12ab12"), "1|2|ab|1|2");
  EXPECT_EQ(cut(load(with_splits(file, {"\\p{N}{1,3}", "a"})), "12ab12"), "12|a|b|12");
}

TEST(Tokenizer, ASplitSeesOnlyThePieceOfTheOneBeforeIt) {
  const json file = small_tokenizer({{"a", "a"}});
  EXPECT_EQ(cut(load(with_splits(file, {"a(?=b)"})), "aab"), "a|a|b");
  EXPECT_EQ(cut(load(with_splits(file, {"b", "a(?=b)"})), "aab"), "aa|b");
}

TEST(Tokenizer, ByteLevelMayCutWordsItself) {
  json file = small_tokenizer({{"d", "o"}, {"o", "n"}, {"n", "'"}, {"\xC4\xA0", "1"}, {"1", "a"}});
  file["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  EXPECT_EQ(cut(load(file), "don't 1a"), "do|n|'|t| 1|a");
}

TEST(Tokenizer, WhiteSpaceIsTheUnicodeProperty) {
  // Words of \S: "a" merges with the first byte of what belongs to its word.
  const Tokenizer tokenizer = load(with_splits(
      small_tokenizer({{"a", letter(0xC2).c_str()}, {"a", letter(0xE1).c_str()}}), {"\\S+"}));
  EXPECT_EQ(cut(tokenizer, "a\xC2\xA2"), "a\xC2|\xA2");            // U+00A2, a symbol
  EXPECT_EQ(cut(tokenizer, "a\xC2\x85"), "a|\xC2|\x85");           // U+0085, white space
  EXPECT_EQ(cut(tokenizer, "a\xE1\x9A\x80"), "a|\xE1|\x9A|\x80");  // U+1680, white space
  EXPECT_EQ(cut(tokenizer, "a\xE1\xA0\x8E"), "a\xE1|\xA0|\x8E");   // U+180E, was one long ago
}

TEST(Tokenizer, CategoriesAreThoseOfUnicode16) {
  const json file = small_tokenizer({{"a", letter(0xF0).c_str()}, {"a", letter(0xE1).c_str()}});
  const std::string symbol_15 = "\xF0\x9F\xAB\xA8", letter_16 = "\xE1\xB2\x8A";  // U+1FAE8, U+1C8A
  const std::pair<const char*, const char*> cases[] = {{"[a\\p{S}]+", "a\xF0|\x9F|\xAB|\xA8"},
                                                       {"(?:a|\\p{So})+", "a\xF0|\x9F|\xAB|\xA8"},
                                                       {"\\p{S}", "a|\xF0|\x9F|\xAB|\xA8"}};
  for (const auto& [expression, expected] : cases)
    EXPECT_EQ(cut(load(with_splits(file, {expression})), "a" + symbol_15), expected) << expression;
  for (const char* expression : {"\\p{L}+", "\\p{Ll}+", "[^\\p{S}]+", "\\P{Ll}+"})
    EXPECT_EQ(cut(load(with_splits(file, {expression})), "a" + letter_16), "a\xE1|\xB2|\x8A")
        << expression;
}

TEST(Tokenizer, AddedTokensAreFoundInTheTextLongestFirst) {
  json file = small_tokenizer({{"a", "<"}});
  file["added_tokens"] = {added(300, "<x>"), added(301, "<x>y"), added(302, "x>")};
  const Tokenizer tokenizer = load(file);
  EXPECT_EQ(encode(tokenizer, "a<x>b<x>y<x"), (Ids{97, 300, 98, 301, 60, 120}));
  EXPECT_EQ(encode(tokenizer, "x>"), (Ids{302}));
  EXPECT_EQ(encode(tokenizer, "<<x>x"), (Ids{60, 300, 120}));
  EXPECT_EQ(tokenizer.decode(Ids{301, 97}), "<x>ya");
  EXPECT_EQ(tokenizer.find("<x>y"), 301);
  EXPECT_EQ(tokenizer.vocab_size(), 303);
}

TEST(Tokenizer, NormalizedAddedTokensAreLookedForAfterTheOthers) {
  json file = small_tokenizer({});
  file["added_tokens"] = {added(300, "ab", true), added(301, "bc")};
  EXPECT_EQ(encode(load(file), "abcab"), (Ids{97, 301, 300}));
}

TEST(Tokenizer, AnAddedTokenMayBeAnEntryOfTheVocabulary) {
  json file = small_tokenizer({{"a", "b"}});
  file["model"]["vocab"]["<\xEF\xBD\x9C>"] = 257;  // not in the letters of bytes
  file["added_tokens"] = {added(256, "ab"), added(257, "<\xEF\xBD\x9C>")};
  EXPECT_EQ(encode(load(file), "ab<\xEF\xBD\x9C>"), (Ids{256, 257}));
  EXPECT_EQ(load(file).token_bytes(257), "<\xEF\xBD\x9C>");
}

TEST(Tokenizer, EveryByteOutsideUtf8IsATokenOfItsOwn) {
  json file = small_tokenizer({{"a", "b"}, {letter(0xE4).c_str(), letter(0xBD).c_str()}});
  file["added_tokens"] = {added(300, "<x>")};
  const Tokenizer tokenizer = load(file);
  EXPECT_EQ(cut(tokenizer,
                "a\xFF"
                "b"),
            "a|\xFF|b");
  EXPECT_EQ(cut(tokenizer, "\xE4\xBD\xA0"), "\xE4\xBD|\xA0");  // well-formed: merges
  EXPECT_EQ(cut(tokenizer,
                "\xE4\xBD"
                "ab"),
            "\xE4|\xBD|ab");                                    // cut off: does not
  EXPECT_EQ(cut(tokenizer, "\xED\xA0\x80"), "\xED|\xA0|\x80");  // a surrogate
  EXPECT_EQ(cut(tokenizer, "<x\xFF>"), "<|x|\xFF|>");
}

TEST(Tokenizer, EveryTextComesBack) {
  json file = with_splits(
      small_tokenizer({{"a", "b"}, {"ab", "a"}, {letter(0xC3).c_str(), letter(0xA4).c_str()}}),
      {"\\p{L}+", "\\s+(?!\\S)|\\s"});
  file["added_tokens"] = {added(300, "bab"), added(301, "b b", true)};
  const Tokenizer tokenizer = load(file);
  std::mt19937_64 random(5);
  for (int i = 0; i < 3000; ++i) {
    static constexpr char kBytes[] = "ab \n\xC3\xA4\xE2\x80\xA9\xFF";
    std::string text(random() % 20, '\0');
    for (char& byte : text)
      byte = random() % 8 == 0 ? static_cast<char>(random()) : kBytes[random() % sizeof(kBytes)];
    EXPECT_EQ(tokenizer.decode(encode(tokenizer, text)), text);
  }
}

// Merges by the definition: scan for the best pair, merge, again.
std::vector<std::string> merged_by_definition(const json& file, const std::string& word) {
  std::vector<std::string> parts;
  for (const char byte : word) parts.emplace_back(1, byte);
  while (true) {
    size_t best = 0, best_rank = file["model"]["merges"].size();
    for (size_t i = 0; i + 1 < parts.size(); ++i)
      for (size_t rank = 0; rank < best_rank; ++rank)
        if (file["model"]["merges"][rank] == parts[i] + " " + parts[i + 1])
          best = i, best_rank = rank;
    if (best_rank == file["model"]["merges"].size()) return parts;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(Tokenizer, MergesAgreeWithTheirDefinitionOnRandomWords) {
  const json file = small_tokenizer({{"b", "a"},
                                     {"a", "a"},
                                     {"ba", "b"},
                                     {"aa", "b"},
                                     {"a", "b"},
                                     {"ab", "ba"},
                                     {"bab", "a"},
                                     {"aa", "aa"},
                                     {"c", "ab"}});
  const Tokenizer tokenizer = load(file);
  std::mt19937_64 random(6);
  for (int i = 0; i < 400; ++i) {
    std::string word(1 + random() % 40, 'a');
    for (char& c : word) c = static_cast<char>('a' + random() % 3);
    std::string expected;
    for (const auto& part : merged_by_definition(file, word))
      expected += (expected.empty() ? "" : "|") + part;
    EXPECT_EQ(cut(tokenizer, word), expected);
    EXPECT_EQ(cut(tokenizer, word), expected) << "from the cache";
  }
}

TEST(Tokenizer, AWordOfAMegabyteIsEncoded) {
  const Tokenizer tokenizer =
      load(with_splits(small_tokenizer({{"a", "a"}, {"aa", "aa"}}), {"\\p{L}+|\\s+(?!\\S)|\\s+"}));
  const std::string text = std::string(1 << 20, 'a') + std::string(1 << 20, ' ') + "a";
  const Ids ids = encode(tokenizer, text);
  EXPECT_EQ(ids.size(), (1u << 18) + (1u << 20) + 1);
  EXPECT_EQ(tokenizer.decode(ids), text);
}

TEST(Tokenizer, ThreadsGetTheSameIds) {
  const Tokenizer tokenizer =
      load(with_splits(small_tokenizer({{"a", "b"}, {"b", "c"}, {"ab", "c"}}), {"c+"}));
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "abccb"[(i * i + i / 7) % 5];
  const Ids expected = encode(tokenizer, text);
  std::vector<Ids> got(4);
  std::vector<std::thread> threads;
  for (auto& ids : got)
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) ids = encode(tokenizer, text);
    });
  for (auto& thread : threads) thread.join();
  for (const auto& ids : got) EXPECT_EQ(ids, expected);
}

TEST(Tokenizer, TokensAreFoundAsTheFileSpellsThem) {
  const Tokenizer tokenizer = load(small_tokenizer({{letter(' ').c_str(), "a"}}));
  EXPECT_EQ(tokenizer.find(letter(' ') + "a"), 256);
  EXPECT_EQ(tokenizer.token_bytes(256), " a");
  EXPECT_EQ(tokenizer.find(" a"), std::nullopt);
}

TEST(Tokenizer, IdsWithoutATokenAreRefused) {
  json file = small_tokenizer({});
  file["added_tokens"] = {added(300, "<x>")};
  const Tokenizer tokenizer = load(file);
  for (const int32_t id : {-1, 256, 299, 301})
    expect_error<DataError>([&] { (void)tokenizer.token_bytes(id); },
                            {"E-TOK-RANGE", "below 301", std::to_string(id).c_str()});
}

TEST(Tokenizer, ATextOfTwoGigabytesIsRefused) {
  const char byte = 'a';
  Ids ids;
  expect_error<DataError>(
      [&] { load(small_tokenizer({})).encode(std::string_view(&byte, size_t{1} << 31), ids); },
      {"E-TOK-LENGTH", "2147483648"});
}

TEST(Tokenizer, TheFingerprintIsTheFilesSha256) {
  const test::TempFolder folder;
  const auto path = folder / "tokenizer.json";
  std::ofstream(path) << small_tokenizer({{"a", "b"}}).dump();
  const Tokenizer tokenizer = Tokenizer::from_file(path);
  EXPECT_EQ(tokenizer.fingerprint(), sha256_of_file(path));
  EXPECT_EQ(cut(tokenizer, "aab"), "a|ab");
  expect_error<DataError>([&] { Tokenizer::from_file(folder / "none.json"); }, {"none.json"});
}

TEST(TokenizerFile, WhatIsNotJsonIsRefused) {
  const auto from = [](std::string text) { Tokenizer::from_json(text, "t.json"); };
  expect_error<DataError>([&] { from("{\"model\": "); }, {"t.json: byte 11 [E-TOK-JSON]"});
  expect_error<DataError>([&] { from(std::string("{}\0", 3)); }, {"t.json: byte 2 [E-TOK-JSON]"});
  expect_error<DataError>([&] { from("{\"version\": 1e999}"); }, {"t.json [E-TOK-JSON]", "1e999"});
  expect_error<DataError>([&] { from("[]"); }, {"t.json: the file [E-TOK-KEY]", "object"});
}

TEST(TokenizerFile, KeysAreKnownAndOfTheirType) {
  refused([](json& f) { f["more"] = 1; }, {"t.json: the file [E-TOK-KEY]", "'more'"});
  refused([](json& f) { f["version"] = "2.0"; }, {"[E-TOK-KEY]", "'version'", "2.0"});
  refused([](json& f) { f["truncation"] = json::object(); }, {"[E-TOK-KEY]", "'truncation'"});
  refused([](json& f) { f["padding"] = json::object(); }, {"[E-TOK-KEY]", "'padding'"});
  refused([](json& f) { f.erase("model"); }, {"[E-TOK-KEY]", "'model'", "nothing"});
  refused([](json& f) { f["model"]["more"] = 1; }, {"t.json: model [E-TOK-KEY]", "'more'"});
  refused([](json& f) { f["model"]["merges"] = "a b"; }, {"t.json: model [E-TOK-KEY]", "array"});
  refused([](json& f) { f["model"]["ignore_merges"] = 1; }, {"[E-TOK-KEY]", "true or false"});
  refused([](json& f) { f["added_tokens"][0]["more"] = 1; }, {"added_tokens[0] [E-TOK-KEY]"});
  refused([](json& f) { f["pre_tokenizer"]["type"] = 1; }, {"pre_tokenizer [E-TOK-KEY]", "string"});
}

TEST(TokenizerFile, OnlyAnEmptyNormalizerIsAccepted) {
  json file = small_tokenizer({});
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array()}};
  EXPECT_EQ(cut(load(file), "ab"), "a|b");
  refused(
      [](json& f) {
        f["normalizer"] = {{"type", "NFC"}};
      },
      {"t.json: normalizer [E-TOK-NORMALIZER]", "NFC"});
  refused(
      [](json& f) {
        f["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}};
      },
      {"[E-TOK-NORMALIZER]", "NFC"});
}

TEST(TokenizerFile, OnlySplitsAndByteLevelAreAccepted) {
  const auto part = [](json& f, size_t i) -> json& {
    return f["pre_tokenizer"]["pretokenizers"][i];
  };
  refused(
      [](json& f) {
        f["pre_tokenizer"] = {{"type", "Metaspace"}};
      },
      {"t.json: pre_tokenizer [E-TOK-PRE]", "'Metaspace'"});
  refused(
      [&](json& f) {
        part(f, 0) = {{"type", "Digits"}};
      },
      {"pre_tokenizer.pretokenizers[0] [E-TOK-PRE]", "'Digits'"});
  refused([&](json& f) { part(f, 1) = part(f, 0); }, {"pretokenizers[1] [E-TOK-PRE]", "'Split'"});
  refused([](json& f) { f["pre_tokenizer"]["pretokenizers"] = json::array(); },
          {"[E-TOK-PRE]", "empty"});
  refused([&](json& f) { part(f, 0)["behavior"] = "Removed"; }, {"[E-TOK-PRE]", "'Removed'"});
  refused([&](json& f) { part(f, 0)["pattern"] = {{"String", "a"}}; }, {"[E-TOK-PRE]", "Regex"});
  refused([&](json& f) { part(f, 1)["add_prefix_space"] = true; },
          {"[E-TOK-PRE]", "add_prefix_space"});
  refused(
      [](json& f) {
        f["decoder"] = {{"type", "Fuse"}};
      },
      {"t.json: decoder [E-TOK-DECODER]", "'Fuse'"});
}

TEST(TokenizerFile, ExpressionsThatTwoLibrariesReadDifferentlyAreRefused) {
  const auto expression = [](const char* text) {
    return [text](json& f) { f["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = text; };
  };
  const std::pair<const char*, const char*> cases[] = {{"\\w+", "'\\w' at byte 0"},
                                                       {"a\\b", "'\\b' at byte 1"},
                                                       {"\\x41", "an escape"},
                                                       {"\\p{Han}", "general category"},
                                                       {"\\p{Cn}", "general category"},
                                                       {"[\\P{L}]", "negated"},
                                                       {"[\\D]", "negated"},
                                                       {"\\pL", "general category"},
                                                       {"\\p{L", "general category"},
                                                       {"[a[b]]", "a class must not hold"},
                                                       {"[a&&b]", "intersection"},
                                                       {"[]a]", "a member"},
                                                       {"^a", "tied"},
                                                       {"a$", "tied"},
                                                       {"(?<n>a)", "a group"},
                                                       {"(*ACCEPT)a", "a group"},
                                                       {"a{1,3}+", "a brace"},
                                                       {"a{,3}", "a brace"},
                                                       {"a{x}", "a brace"},
                                                       {"a\\", "an escape"},
                                                       {"(a", "must compile"},
                                                       {"[a", "must compile"},
                                                       {"a*", "may match nothing"}};
  for (const auto& [text, part] : cases)
    refused(expression(text), {"t.json: pre_tokenizer.pretokenizers[0] [E-TOK-REGEX]", part});
}

TEST(TokenizerFile, OtherModelsThanByteLevelBpeAreRefused) {
  const auto model = [](const char* key, json value) {
    return [key, value](json& f) { f["model"][key] = value; };
  };
  refused(model("type", "WordPiece"), {"t.json: model [E-TOK-MODEL]", "'WordPiece'"});
  refused(model("dropout", 0.1), {"[E-TOK-MODEL]", "'dropout'", "0.1"});
  refused(model("byte_fallback", true), {"[E-TOK-MODEL]", "'byte_fallback'"});
  refused(model("continuing_subword_prefix", "##"),
          {"[E-TOK-MODEL]", "'continuing_subword_prefix'"});
  refused(model("end_of_word_suffix", "</w>"), {"[E-TOK-MODEL]", "'end_of_word_suffix'"});
  json file = small_tokenizer({{"a", "b"}});
  file["model"].erase("type");  // files of the first years
  file["model"]["end_of_word_suffix"] = "";
  file["model"]["unk_token"] = "<unk>";  // never needed
  EXPECT_EQ(cut(load(file), "ab"), "ab");
}

TEST(TokenizerFile, IdsAreDistinctAndBounded) {
  for (const json& id : {json(-1), json(1 << 20), json(1.5), json("1")})
    refused([&](json& f) { f["model"]["vocab"]["new"] = id; },
            {"t.json: model.vocab [E-TOK-ID]", "'new'"});
  refused([](json& f) { f["model"]["vocab"]["new"] = 97; }, {"[E-TOK-ID]", "97"});
  refused([](json& f) { f["added_tokens"][0]["id"] = 97; },
          {"added_tokens[0] [E-TOK-ID]", "97 for '<x>'"});
  refused([](json& f) { f["added_tokens"][0]["id"] = -5; }, {"added_tokens[0] [E-TOK-ID]", "-5"});
}

TEST(TokenizerFile, EveryByteNeedsAnEntry) {
  refused([](json& f) { f["model"]["vocab"].erase(letter(0)); },
          {"t.json: model.vocab [E-TOK-BYTES]", "byte 00"});
}

TEST(TokenizerFile, MergesJoinEntriesIntoEntriesOnce) {
  const auto merge = [](json value) {
    return [value](json& f) { f["model"]["merges"].push_back(value); };
  };
  refused(merge("a"), {"t.json: model [E-TOK-MERGE]", "merges[1]"});
  refused(merge("a b c"), {"[E-TOK-MERGE]", "merges[1]"});
  refused(merge(json{"a"}), {"[E-TOK-MERGE]", "merges[1]"});
  refused(merge("a c"), {"[E-TOK-MERGE]", "'ac', which is none"});
  refused(merge("zz c"), {"[E-TOK-MERGE]", "'zz', which is none"});
  refused(merge("a b"), {"[E-TOK-MERGE]", "merges[1] = 'a b' again"});
}

TEST(TokenizerFile, AddedTokensAreDistinctAndPlain) {
  for (const char* key : {"single_word", "lstrip", "rstrip"})
    refused([&](json& f) { f["added_tokens"][0][key] = true; },
            {"added_tokens[0] [E-TOK-ADDED]", key});
  refused([](json& f) { f["added_tokens"][0]["content"] = ""; }, {"[E-TOK-ADDED]", "not empty"});
  refused([](json& f) { f["added_tokens"].push_back(added(301, "<x>")); },
          {"added_tokens[1] [E-TOK-ADDED]"});
  refused([](json& f) { f["added_tokens"][0]["content"] = "ab"; },
          {"[E-TOK-ADDED]", "'ab' with id 300, there 256"});
  // The entry stands for a space, the content for the letter that spells it.
  refused([](json& f) { f["added_tokens"][0] = added(32, letter(' ').c_str()); },
          {"[E-TOK-ADDED]"});
}

}  // namespace
}  // namespace lethe
