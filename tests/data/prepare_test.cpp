#include "lethe/data/prepare.h"

#include <csignal>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "support/expect_error.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lethe/base/error.h"
#include "lethe/data/dataset_card.h"
#include "lethe/data/indexed_file.h"
#include "lethe/data/training_data.h"
#include "lethe/io/atomic_file.h"
#include "lethe/io/checksum.h"

namespace lethe {
namespace {

namespace fs = std::filesystem;
using test::expect_error;

// A tokenizer.json of the real form that tokenizes like bytes: the 256 byte characters without
// merges, and "<|end|>" = 256.
std::string tokenizer_json() {
  std::string vocab;
  int moved = 0;  // bytes that are no printable character stand behind the others
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const int code = printable ? byte : 256 + moved++;
    vocab += fmt::format("{}\"\\u{:04x}\":{}", byte == 0 ? "" : ",", code, byte);
  }
  return fmt::format(
      R"({{"version":"1.0","added_tokens":[{{"id":256,"content":"<|end|>","single_word":false,)"
      R"("lstrip":false,"rstrip":false,"normalized":false,"special":true}}],"normalizer":null,)"
      R"("pre_tokenizer":{{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,)"
      R"("use_regex":false}},"decoder":{{"type":"ByteLevel"}},)"
      R"("model":{{"type":"BPE","vocab":{{{}}},"merges":[]}}}})",
      vocab);
}

class Prepare : public testing::Test {
 protected:
  [[nodiscard]] std::string path(const std::string& name) const {
    return (folder_.path() / name).string();
  }

  std::string write(const std::string& name, const std::string& content) const {
    folder_.write(name, content);
    return path(name);
  }

  [[nodiscard]] PrepareSettings settings(std::vector<std::string> inputs) const {
    return {.inputs = std::move(inputs), .output = path("out/data")};
  }

  // Documents of the output as text; ids from 256 on as "<ID>".
  [[nodiscard]] std::vector<std::string> documents() const {
    const IndexedFile file(path("out/data"));
    std::vector<std::string> out;
    for (int64_t d = 0; d < file.layout().num_documents(); ++d) {
      const TokenRange range = file.document(d);
      std::vector<int64_t> ids(static_cast<size_t>(range.size()));
      file.read(range.begin, ids);
      std::string& text = out.emplace_back();
      for (const int64_t id : ids)
        text += id < 256 ? std::string(1, static_cast<char>(id)) : fmt::format("<{}>", id);
    }
    return out;
  }

  [[nodiscard]] std::map<std::string, std::string> outputs() const {
    std::map<std::string, std::string> out;
    for (const auto& file : fs::directory_iterator(path("out")))
      out[file.path().filename().string()] = read_text_file(file.path());
    return out;
  }

  test::TempFolder folder_;
};

using Texts = std::vector<std::string>;

TEST_F(Prepare, EveryFileOfAFolderIsADocument) {
  write("in/b", "two\n");
  write("in/a/x", std::string("\0\xff one", 6));
  write("in/empty", "");
  const PrepareReport report = prepare(settings({path("in")}));
  EXPECT_EQ(documents(), (Texts{std::string("\0\xff one", 6), "two\n"}));
  EXPECT_EQ(report.documents, 2);
  EXPECT_EQ(report.empty_documents, 1);
  EXPECT_EQ(report.tokens, 10);
  EXPECT_EQ(report.largest_id, 255);
  EXPECT_EQ(report.input_bytes, 10);
  EXPECT_EQ(report.files,
            (Texts{path("out/data.bin"), path("out/data.json"), path("out/data.idx")}));
  EXPECT_EQ(outputs().size(), 3u);  // nothing unfinished is left
  const auto card = read_card(path("out/data"));
  ASSERT_TRUE(card.has_value());
  EXPECT_EQ(card->tokenizer, "bytes");
  EXPECT_EQ(card->dtype, "uint8");
  ASSERT_EQ(card->sources.size(), 3u);
  EXPECT_EQ(card->sources[1].sha256, sha256_of_file(path("in/b")));
}

TEST_F(Prepare, LinesAreDocumentsOnRequest) {
  auto s = settings({write("in.txt", "one\n\n  \ntwo\r\nthree")});
  s.format = InputFormat::Lines;
  EXPECT_EQ(prepare(s).empty_documents, 2);
  EXPECT_EQ(documents(), (Texts{"one", "two", "three"}));
}

TEST_F(Prepare, PromptsOfJsonlAreMaskedOutOfTheLoss) {
  const std::string input = write("in.jsonl",
                                  "{\"prompt\": \"ab\", \"response\": \"cd\"}\n\n"
                                  "{\"text\": \"ef\"}\n{\"text\": \"\"}\n");
  auto s = settings({input});
  s.end_of_document = "!";
  EXPECT_EQ(prepare(s).masked_tokens, 2);
  EXPECT_EQ(documents(), (Texts{"abcd!", "ef!"}));
  const IndexedFile file(path("out/data"));
  std::vector<uint8_t> mask(8);
  file.read_mask(0, mask);
  EXPECT_EQ(mask, (std::vector<uint8_t>{0, 0, 1, 1, 1, 1, 1, 1}));
  s.mask_prompts = false;
  s.overwrite = true;
  EXPECT_EQ(prepare(s).masked_tokens, 0);
  EXPECT_FALSE(IndexedFile(path("out/data")).has_mask());  // the old mask is gone
  EXPECT_EQ(outputs().size(), 3u);
}

TEST_F(Prepare, JsonlWithoutPromptsHasNoMask) {
  prepare(settings({write("in.jsonl", "{\"text\": \"ef\"}")}));
  EXPECT_FALSE(IndexedFile(path("out/data")).has_mask());
  EXPECT_EQ(outputs().size(), 3u);
}

TEST_F(Prepare, AnotherTokenizerIsCopiedAndEndsDocuments) {
  auto s = settings({write("in/a", "one"), write("in/b", "two")});
  s.tokenizer = write("tokenizer.json", tokenizer_json());
  s.end_of_document = "<|end|>";
  const PrepareReport report = prepare(s);
  EXPECT_EQ(report.largest_id, 256);
  EXPECT_EQ(documents(), (Texts{"one<256>", "two<256>"}));
  EXPECT_EQ(IndexedFile(path("out/data")).layout().dtype(), TokenDtype::U16);
  EXPECT_EQ(outputs().at("data.tokenizer.json"), tokenizer_json());
  DataSettings data{.parts = {{path("out/data")}}, .seq_length = 4, .vocab_size = 257};
  EXPECT_EQ(TrainingData(data).facts().tokenizer_json, path("out/data.tokenizer.json"));
  data.vocab_size = 256;
  expect_error<DataError>([&] { TrainingData{data}; },
                          {"data", "largest token id", "256, got 256", "at least 257"});
  data.vocab_size = 257;
  data.parts.push_back({path("in")});
  expect_error<DataError>([&] { TrainingData{data}; }, {"one tokenizer", "'bytes'"});
  s.max_document_bytes = 2;
  s.overwrite = true;
  expect_error<DataError>([&] { prepare(s); }, {"in/a", "at most 2 bytes", "file of 3", "lines"});
}

TEST_F(Prepare, BadInputNamesItsPlace) {
  expect_error<DataError>([&] { prepare(settings({path("absent")})); },
                          {"absent", "nothing there"});
  expect_error<DataError>([&] { prepare(settings({write("empty", "")})); }, {"at least one token"});
  auto s = settings({write("in.jsonl", "{\"text\": \"a\"}\n{\"text\": }\n")});
  expect_error<DataError>([&] { prepare(s); }, {"in.jsonl: line 2 (byte 14)", "JSON object"});
  s.end_of_document = "<none>";
  expect_error<ConfigError>([&] { prepare(s); }, {"end-of-document", "'<none>'"});
  expect_error<ConfigError>([&] { prepare(settings({})); }, {"at least one input"});
  s = settings({write("in/a", "x")});
  s.output = path("in/data");
  s.inputs = {path("in")};
  expect_error<ConfigError>([&] { prepare(s); }, {"must not lie in an input folder"});
  s.output = path("in") + "/";
  expect_error<ConfigError>([&] { prepare(s); }, {"ends in a name"});
}

TEST_F(Prepare, AFinishedOutputIsReplacedOnlyOnRequest) {
  auto s = settings({write("in", "first")});
  prepare(s);
  write("in", "second");
  expect_error<DataError>([&] { prepare(s); }, {"data.idx", "must not exist yet", "overwrite"});
  EXPECT_EQ(documents(), Texts{"first"});
  s.overwrite = true;
  prepare(s);
  EXPECT_EQ(documents(), Texts{"second"});
}

TEST_F(Prepare, ItNeverReplacesItsOwnInput) {
  auto s = settings({path("out/data.json")});
  s.overwrite = true;
  for (const char* ending : {".json",
                             ".bin",
                             ".idx",
                             ".mask.bin",
                             ".mask.idx.part",
                             ".tokenizer.json",
                             ".json.part",
                             ".lengths.part",
                             ".progress",
                             ".lock"}) {
    SCOPED_TRACE(ending);
    s.inputs = {write(std::string("out/data") + ending, "text")};
    expect_error<ConfigError>([&] { prepare(s); }, {"an input", ending, "--output-prefix"});
    EXPECT_EQ(outputs(),
              (std::map<std::string, std::string>{{"data" + std::string(ending), "text"}}));
    fs::remove(s.inputs[0]);
  }
  s.inputs = {write("in/a", "text")};
  write("out/data.tokenizer.json", tokenizer_json());
  s.tokenizer = path("out/../out/data.tokenizer.json");
  expect_error<ConfigError>([&] { prepare(s); }, {"the tokenizer must be none of the files"});
  s.tokenizer = "bytes";
  fs::create_symlink(path("in/a"), path("out/data.bin"));
  expect_error<ConfigError>([&] { prepare(s); }, {"in/a', which is '", "out/data.bin"});
}

TEST_F(Prepare, AForeignTokenizerBesideTheOutputIsReplacedOnlyOnRequest) {
  auto s = settings({write("in", "text")});
  write("out/data.tokenizer.json", "mine");
  expect_error<DataError>([&] { prepare(s); }, {"data.tokenizer.json", "must not exist yet"});
  EXPECT_EQ(outputs().at("data.tokenizer.json"), "mine");
  s.overwrite = true;
  prepare(s);
  EXPECT_EQ(outputs().count("data.tokenizer.json"), 0u);
}

TEST_F(Prepare, ASecondCallOfTheSameNameIsRefusedWhileTheFirstWorks) {
  const auto s = settings({write("in", std::string(3'000'000, 'x'))});
  int refused = 0;
  prepare(s, [&](const PrepareProgress&) {
    expect_error<DataError>([&] { prepare(s); }, {"out/data.lock", "one preparation at a time"});
    ++refused;
  });
  EXPECT_GE(refused, 2);
  EXPECT_EQ(outputs().size(), 3u);
}

TEST_F(Prepare, ALockFileThatAKilledCallLeftLocksNothing) {
  write("out/data.lock", "");
  prepare(settings({write("in", "text")}));
  EXPECT_EQ(outputs().size(), 3u);
}

TEST_F(Prepare, RecordsWithoutAResponseAreLeftOutWherePromptsAreMasked) {
  auto s = settings({write("in.jsonl",
                           "{\"prompt\": \"ab\", \"response\": \"\"}\n"
                           "{\"prompt\": \"c\", \"response\": \"d\"}\n")});
  s.end_of_document = "!";
  EXPECT_EQ(prepare(s).empty_documents, 1);
  EXPECT_EQ(documents(), Texts{"cd!"});
  s.overwrite = true;
  s.mask_prompts = false;
  EXPECT_EQ(prepare(s).empty_documents, 0);
  EXPECT_EQ(documents(), (Texts{"ab!", "cd!"}));
}

TEST_F(Prepare, CompressedFilesAreRefusedUnlessTheyAreCalledText) {
  for (const char* ending : {".gz", ".zst", ".bz2", ".xz", ".zip"}) {
    auto s = settings({write(std::string("in/a.jsonl") + ending, "text")});
    expect_error<DataError>([&] { prepare(s); }, {ending, "decompress", "--input-format text"});
    s.format = InputFormat::Text;
    s.overwrite = true;
    EXPECT_EQ(prepare(s).tokens, 4);
  }
}

TEST_F(Prepare, AFileIsGivenOnce) {
  write("in/a", "text");
  expect_error<ConfigError>(
      [&] {
        prepare(settings({path("in"), path("in/../in/a")}));
      },
      {"given once", "in/../in/a"});
}

TEST_F(Prepare, HiddenFilesAreCountedAndTheVocabularyIsTold) {
  write("in/a", "text");
  write("in/.b", "hidden");
  write("in/.c/d", "hidden");
  const PrepareReport report = prepare(settings({path("in")}));
  EXPECT_EQ(report.hidden_skipped, 2);
  EXPECT_EQ(report.vocab_size, 256);
  EXPECT_EQ(documents(), Texts{"text"});
}

TEST_F(Prepare, ATextThatTheTokenizerRefusesIsNamedByItsPlace) {
  // Backtracks beyond every limit on a long row of a's.
  std::string json = tokenizer_json();
  const std::string before = R"("pre_tokenizer":)";
  const size_t at = json.find(before) + before.size();
  const size_t end = json.find(R"(,"decoder")");
  json = json.substr(0, at) +
         R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"(a+)+[bc]"},)"
         R"("behavior":"Isolated","invert":false},)" +
         json.substr(at, end - at) + "]}" + json.substr(end);
  auto s = settings({write("in.txt", "fine\n" + std::string(5'000, 'a') + "\n")});
  s.tokenizer = write("tokenizer.json", json);
  expect_error<DataError>([&] { prepare(s); }, {"in.txt: ", "[E-TOK-MATCH]"});
  s.format = InputFormat::Lines;
  s.overwrite = true;
  expect_error<DataError>([&] { prepare(s); }, {"in.txt: line 2 (byte 5): ", "[E-TOK-MATCH]"});
}

TEST_F(Prepare, NamesThatTheSystemRefusesAreDataErrors) {
  auto s = settings({write("in", "text")});
  s.output = path(std::string(300, 'n'));
  EXPECT_THROW(prepare(s), DataError);
  s.output = path("out/data");
  fs::create_directories(path("out"));
  fs::create_symlink(path("out/data.json"), path("out/data.json"));  // a link to itself
  expect_error<DataError>([&] { prepare(s); }, {"out/data.json", "cannot look at the path"});
}

TEST_F(Prepare, ProgressGrowsToTheTotals) {
  auto s = settings({write("in", std::string(5'000'000, 'x'))});
  std::vector<PrepareProgress> seen;
  prepare(s, [&](const PrepareProgress& p) { seen.push_back(p); });
  ASSERT_GE(seen.size(), 4u);
  for (size_t i = 1; i < seen.size(); ++i) EXPECT_GE(seen[i].bytes_done, seen[i - 1].bytes_done);
  EXPECT_EQ(seen.back().bytes_done, 5'000'000);
  EXPECT_EQ(seen.back().bytes_total, 5'000'000);
  EXPECT_EQ(seen.back().tokens, 5'000'000);
  EXPECT_EQ(seen.back().documents, 1);
}

TEST_F(Prepare, InputThatChangedBeforeTheOutputGotItsNamesIsRefused) {
  auto s = settings({write("in", std::string(3'000'000, 'x'))});
  EXPECT_THROW(prepare(s,
                       [&](const PrepareProgress&) {
                         fs::create_directories(path("out/data.bin/in-the-way"));
                       }),
               DataError);
  fs::remove_all(path("out/data.bin"));
  ASSERT_TRUE(fs::exists(path("out/data.idx.part")));
  write("in", std::string(3'000'000, 'y'));
  expect_error<DataError>([&] { prepare(s); }, {"in: must be unchanged", "--overwrite"});
  write("in", std::string(3'000'000, 'x'));
  EXPECT_EQ(prepare(s).resumed_at_bytes, 3'000'000);
  EXPECT_EQ(documents(), Texts{std::string(3'000'000, 'x')});
}

// A preparation that is stopped by an exception of its progress callback, as by a full disk.
struct Stop {};

class Interrupted : public Prepare {
 protected:
  // Stops at the second progress call; marks at every block.
  void SetUp() override {
    write("in/a", std::string(1'500'000, 'a'));
    write("in/b", std::string(3'000'000, 'b'));
    settings_ = settings({path("in")});
    settings_.mark_bytes = 1;
    int calls = 0;
    EXPECT_THROW(prepare(settings_,
                         [&](const PrepareProgress&) {
                           if (++calls == 2) throw Stop{};
                         }),
                 Stop);
    ASSERT_TRUE(fs::exists(path("out/data.progress")));
    ASSERT_FALSE(fs::exists(path("out/data.idx")));
  }

  PrepareSettings settings_;
};

TEST_F(Interrupted, GoesOnWhereItStopped) {
  int64_t before = 0;
  const PrepareReport report =
      prepare(settings_, [&](const PrepareProgress& p) { before = p.bytes_before; });
  EXPECT_GT(report.resumed_at_bytes, 1'000'000);
  EXPECT_EQ(before, report.resumed_at_bytes);
  EXPECT_EQ(documents(), (Texts{std::string(1'500'000, 'a'), std::string(3'000'000, 'b')}));
  const auto resumed = outputs();
  settings_.overwrite = true;
  EXPECT_EQ(prepare(settings_).resumed_at_bytes, 0);
  EXPECT_EQ(outputs(), resumed);
}

TEST_F(Interrupted, OtherSettingsOrInputsAreNamedAndBeginAnewOnRequest) {
  settings_.end_of_document = "!";
  expect_error<DataError>(
      [&] { prepare(settings_); },
      {"data.progress", "end-of-document token: '' then, '!' now", "overwrite"});
  settings_.end_of_document = "";
  write("in/b", "shorter");
  expect_error<DataError>([&] { prepare(settings_); },
                          {"files that are gone: '",
                           "in/b (3000000 bytes, text)'; ",
                           "files that are new: '",
                           "in/b (7 bytes, text)'"});
  for (const char* name : {"in/c", "in/d", "in/e", "in/f"}) write(name, "more");
  expect_error<DataError>([&] { prepare(settings_); }, {"in/d (4 bytes, text)' and 2 more"});
  write("in/b", std::string(3'000'000, 'b'));
  for (const char* name : {"in/c", "in/d", "in/e", "in/f"}) fs::remove(path(name));
  settings_.inputs = {path("in/b"), path("in/a")};
  expect_error<DataError>([&] { prepare(settings_); }, {"(the order of the input files)"});
  settings_.inputs = {path("in")};
  write("in/b", "shorter");
  write("in/c", "more");
  settings_.overwrite = true;
  EXPECT_EQ(prepare(settings_).resumed_at_bytes, 0);
  EXPECT_EQ(documents(), (Texts{std::string(1'500'000, 'a'), "shorter", "more"}));
}

TEST_F(Interrupted, InputThatChangedBehindTheMarkIsRefused) {
  write("in/a", std::string(1'500'000, 'c'));
  expect_error<DataError>([&] { prepare(settings_); }, {"in/a", "unchanged", "SHA-256"});
  settings_.overwrite = true;
  EXPECT_EQ(prepare(settings_).resumed_at_bytes, 0);
  EXPECT_EQ(documents(), (Texts{std::string(1'500'000, 'c'), std::string(3'000'000, 'b')}));
}

TEST_F(Interrupted, InputThatChangedBeforeAMarkInItsMiddleIsRefused) {
  write("in/b", std::string(3'000'000, 'c'));
  expect_error<DataError>([&] { prepare(settings_); }, {"in/b", "other bytes before byte"});
  settings_.overwrite = true;
  EXPECT_EQ(prepare(settings_).resumed_at_bytes, 0);
  EXPECT_EQ(documents(), (Texts{std::string(1'500'000, 'a'), std::string(3'000'000, 'c')}));
}

TEST_F(Interrupted, DamagedProgressAndMissingPiecesAreNamed) {
  const std::string progress = read_text_file(path("out/data.progress"));
  for (const size_t at : {size_t{0}, progress.size() / 2, progress.size() - 1}) {
    std::string damaged = progress;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    write("out/data.progress", damaged);
    expect_error<DataError>([&] { prepare(settings_); },
                            {"data.progress", "checksum", "overwrite"});
  }
  write("out/data.progress", progress);
  fs::resize_file(path("out/data.bin.part"), 10);
  expect_error<DataError>([&] { prepare(settings_); }, {"data.bin.part", "got 10"});
  settings_.overwrite = true;
  write("out/data.progress", "x");
  EXPECT_EQ(prepare(settings_).tokens, 4'500'000);
}

// SIGKILL at random moments: whoever goes on to the end has the files of an undisturbed run.
TEST_F(Prepare, KilledAgainAndAgainItGivesTheSameFiles) {
  std::mt19937_64 random(4);
  std::string lines;
  for (int i = 0; i < 6'000; ++i)
    lines +=
        fmt::format("{{\"prompt\": \"{}\", \"response\": \"{}\"}}\n", i, std::string(i % 300, 'r'));
  write("in/a.jsonl", lines);
  write("in/b.txt", std::string(2'500'000, 'b'));
  auto s = settings({path("in")});
  s.mark_bytes = 250'000;
  prepare(s);
  const auto expected = outputs();
  fs::remove_all(path("out"));
  int kills = 0;
  while (kills < 20 && !fs::exists(path("out/data.idx"))) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        prepare(s);
      } catch (const std::exception&) {
        ::_exit(1);
      }
      ::_exit(0);
    }
    ::usleep(static_cast<useconds_t>(random() % 30'000));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    kills += WIFSIGNALED(status) ? 1 : 0;
    ASSERT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) != 0) << "a resumed preparation failed";
  }
  if (!fs::exists(path("out/data.idx")) || fs::exists(path("out/data.progress"))) prepare(s);
  fs::remove(path("out/data.lock"));  // of a call that was killed when everything was done
  EXPECT_GE(kills, 3);
  EXPECT_EQ(outputs(), expected);
}

}  // namespace
}  // namespace lethe
