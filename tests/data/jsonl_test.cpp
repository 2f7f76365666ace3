#include "lethe/data/jsonl.h"

#include <string>
#include <vector>

#include "support/expect_error.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>

#include "lethe/base/error.h"
#include "lethe/data/input_stream.h"
#include "lethe/io/checksum.h"

namespace lethe {
namespace {

using test::expect_error;

constexpr LinePlace kPlace{.file = "a.jsonl", .line = 3, .offset = 41};

TEST(ParseJsonlLine, TakesTextOrPromptAndResponseAndIgnoresOtherFields) {
  EXPECT_EQ(parse_jsonl_line(R"({"id": 1, "text": "a\nb\u00e9", "x": null})", kPlace),
            (JsonlRecord{false, "", "a\nb\xc3\xa9"}));
  EXPECT_EQ(parse_jsonl_line(R"( {"response": "r", "prompt": "p"} )", kPlace),
            (JsonlRecord{true, "p", "r"}));
}

TEST(ParseJsonlLine, EveryBadLineNamesFileLineAndByte) {
  const auto expect_bad = [](const char* line, std::initializer_list<const char*> parts) {
    SCOPED_TRACE(line);
    expect_error<DataError>([&] { parse_jsonl_line(line, kPlace); }, parts);
    expect_error<DataError>([&] { parse_jsonl_line(line, kPlace); },
                            {"a.jsonl: line 3 (byte 41): ", "must", "got", "; "});
  };
  expect_bad("{\"text\": \"a\"", {"error at byte 13"});
  expect_bad("hello", {"error at byte 1"});
  expect_bad("{\"text\": \"\xff\"}", {"error at byte 11", "UTF-8"});
  expect_bad("{\"text\": \"a\"} {}", {"error at byte 15"});
  expect_bad("[\"text\"]", {"object, got array"});
  expect_bad("{\"x\": -1e999}", {"number overflow"});
  expect_bad("{}", {"got no `text`"});
  expect_bad("{\"prompt\": \"a\"}", {"got no `response`"});
  expect_bad("{\"response\": \"a\"}", {"got no `prompt`"});
  expect_bad("{\"text\": 5}", {"`text` must be a string, got number"});
  expect_bad("{\"prompt\": null, \"response\": \"a\"}", {"`prompt` must be a string, got null"});
  for (const size_t at : {size_t{0}, size_t{5}, size_t{13}}) {
    std::string line = "{\"text\": \"a\"}, more";
    line.insert(at, 1, '\0');
    expect_error<DataError>([&] { parse_jsonl_line(line, kPlace); },
                            {"a.jsonl: line 3", fmt::format("byte 0 at byte {}", at + 1).c_str()});
  }
  expect_bad("{\"text\": \"a\", \"prompt\": \"b\"}", {"got both"});
}

class Input : public testing::Test {
 protected:
  std::string write(const std::string& content) const {
    folder_.write("input", content);
    return (folder_.path() / "input").string();
  }

  static std::vector<std::string> lines_of(InputStream& in, int64_t max_bytes = 100) {
    std::vector<std::string> lines;
    for (std::string_view line; in.next_line(line, max_bytes);) lines.emplace_back(line);
    return lines;
  }

  test::TempFolder folder_;
};

TEST_F(Input, LinesEndInEitherLineEndAndTheLastMayHaveNone) {
  InputStream in(write("a\n\r\nb\r\nc\rd"));
  EXPECT_EQ(lines_of(in), (std::vector<std::string>{"a", "", "b", "c\rd"}));
  EXPECT_EQ(in.line(), 5);
  EXPECT_EQ(in.offset(), 10);
  InputStream empty(write(""));
  EXPECT_TRUE(lines_of(empty).empty());
}

TEST_F(Input, LinesLongerThanABlockAreWholeAndHashedAsTheFile) {
  const std::string content =
      "x\n" + std::string(3'000'000, 'y') + "\n" + std::string(1'500'000, 'z') + "\nend\n";
  InputStream in(write(content));
  const auto lines = lines_of(in, 4'000'000);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[1].size(), 3'000'000u);
  EXPECT_EQ(lines[2], std::string(1'500'000, 'z'));
  EXPECT_EQ(in.sha256(), sha256_hex(std::as_bytes(std::span(content))));
}

TEST_F(Input, ALineBeyondTheLimitIsNamed) {
  const std::string path = write("short\n" + std::string(2'000'000, 'y') + "\n");
  for (const int64_t limit : {int64_t{10}, int64_t{1'999'999}}) {
    InputStream in(path);
    expect_error<DataError>([&] { lines_of(in, limit); }, {"input: line 2 (byte 6)", "at most"});
  }
  InputStream in(path);
  EXPECT_EQ(lines_of(in, 2'000'000).size(), 2u);
}

TEST_F(Input, ReadingGoesOnFromAnyPlaceWithTheHashOfTheWhole) {
  std::string content;
  for (int i = 0; i < 300'000; ++i) content += std::to_string(i) + "\n";
  const std::string path = write(content);
  const std::string whole = sha256_hex(std::as_bytes(std::span(content)));
  for (const size_t at :
       {size_t{0}, size_t{1}, size_t{1} << 20, content.size() - 1, content.size()}) {
    InputStream in(path, {.offset = static_cast<int64_t>(at), .line = 9});
    EXPECT_EQ(in.sha256(), sha256_hex(std::as_bytes(std::span(content).first(at))));
    std::string rest;
    for (auto block = in.next_block(); !block.empty(); block = in.next_block()) rest += block;
    EXPECT_EQ(rest, content.substr(at));
    EXPECT_EQ(in.sha256(), whole);
  }
  expect_error<DataError>(
      [&] { InputStream(path, {.offset = static_cast<int64_t>(content.size()) + 1}); },
      {"input", "that were read before"});
}

}  // namespace
}  // namespace lethe
