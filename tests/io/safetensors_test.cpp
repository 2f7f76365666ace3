#include "lethe/io/safetensors.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "support/temp_folder.h"
#include <gtest/gtest.h>

#include "lethe/base/error.h"
#include "lethe/io/atomic_file.h"

namespace lethe {
namespace {

using test::TempFolder;

std::string bytes_of(std::initializer_list<int> values) {
  std::string out;
  for (const int value : values) out += static_cast<char>(value);
  return out;
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "accepted";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const std::string kData = bytes_of({0x00,
                                    0x00,
                                    0x80,
                                    0x3F,
                                    0x00,
                                    0x00,
                                    0x00,
                                    0x80,
                                    0x80,
                                    0x3F,
                                    0x80,
                                    0xBF,
                                    0xC0,
                                    0x7F,
                                    0x38,
                                    0x7E});

// The vector of spec 6 9.9, given in another order than the file's.
std::vector<TensorToStore> vector_tensors() {
  const auto data = std::as_bytes(std::span(kData));
  return {{"c", StoredDtype::F8E4M3, {1, 2}, data.subspan(14, 2)},
          {"a", StoredDtype::F32, {2}, data.subspan(0, 8)},
          {"b", StoredDtype::BF16, {3}, data.subspan(8, 6)}};
}

std::string vector_file() {
  return bytes_of({0xD0, 0, 0, 0, 0, 0, 0, 0}) +
         R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
         R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[8,14]},)"
         R"("c":{"dtype":"F8_E4M3","shape":[1,2],"data_offsets":[14,16]}})"
         "       " +
         kData;
}

TEST(Safetensors, TheByteVectorIsWrittenExactly) {
  const TempFolder folder;
  write_safetensors(folder / "v.safetensors", vector_tensors(), {{"format", "pt"}});
  const auto written = read_text_file(folder / "v.safetensors");
  EXPECT_EQ(written.size(), 232u);
  EXPECT_EQ(written, vector_file());
  EXPECT_EQ(written, read_text_file(LETHE_SOURCE_DIR "/tests/fuzz/corpus/safetensors/vector"));
  EXPECT_EQ(folder.num_files(), 1u);
}

TEST(Safetensors, TheByteVectorIsReadExactly) {
  const TempFolder folder;
  write_file_atomically(folder / "v.safetensors", vector_file());
  const SafetensorsFile file(folder / "v.safetensors");
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
  ASSERT_EQ(file.tensors().size(), 3u);
  const auto a = copy_elements<float>(file.bytes(file.at("a")));
  ASSERT_EQ(a.size(), 2u);
  EXPECT_EQ(a[0], 1.0f);
  EXPECT_TRUE(a[1] == 0.0f && std::signbit(a[1]));
  EXPECT_EQ(copy_elements<uint16_t>(file.bytes(file.at("b"))),
            (std::vector<uint16_t>{0x3F80, 0xBF80, 0x7FC0}));
  EXPECT_EQ(copy_elements<uint8_t>(file.bytes(file.at("c"))), (std::vector<uint8_t>{0x38, 0x7E}));
  EXPECT_EQ(file.at("c").shape, (std::vector<int64_t>{1, 2}));
}

TEST(Safetensors, UnalignedDataOfOtherWritersIsReadCorrectly) {
  const TempFolder folder;
  const std::string padded = vector_file();
  // The same header without its seven spaces: the data begins at byte 209.
  std::string unpadded = bytes_of({0xC9, 0, 0, 0, 0, 0, 0, 0}) + padded.substr(8, 201) + kData;
  write_file_atomically(folder / "u.safetensors", unpadded);
  const SafetensorsFile file(folder / "u.safetensors");
  EXPECT_EQ(file.at("a").begin, 209);
  EXPECT_EQ(copy_elements<float>(file.bytes(file.at("a")))[0], 1.0f);
  EXPECT_EQ(copy_elements<uint16_t>(file.bytes(file.at("b")))[1], 0xBF80);
}

TEST(Safetensors, ManyTensorsWithAwkwardNamesSurviveARoundTrip) {
  const TempFolder folder;
  std::vector<std::string> data;
  std::vector<TensorToStore> tensors;
  for (int64_t i = 0; i < 300; ++i)
    data.push_back(std::string(static_cast<size_t>(i), static_cast<char>(i)));
  for (int64_t i = 0; i < 300; ++i)
    tensors.push_back({"layers." + std::to_string(i) + ".\"\\\xC3\xA9\n",
                       i % 2 ? StoredDtype::U8 : StoredDtype::I8,
                       {i, 1},
                       std::as_bytes(std::span(data[static_cast<size_t>(i)]))});
  write_safetensors(folder / "m.safetensors", tensors);
  const SafetensorsFile file(folder / "m.safetensors");
  ASSERT_EQ(file.tensors().size(), 300u);
  for (const auto& tensor : tensors) {
    const auto read = file.bytes(file.at(tensor.name));
    EXPECT_TRUE(std::equal(read.begin(), read.end(), tensor.data.begin(), tensor.data.end()))
        << tensor.name;
  }
}

TEST(Safetensors, ADirectoryAMissingFileAndAnEmptyFileAreRefused) {
  const TempFolder folder;
  write_file_atomically(folder / "empty", std::string_view());
  EXPECT_TRUE(contains(error_of([&] { SafetensorsFile file(folder / "none"); }),
                       "none [E-ST-OPEN]: cannot open the file, got 'No such file or directory'"));
  EXPECT_TRUE(contains(error_of([&] { SafetensorsFile file(folder.path()); }), "[E-ST-OPEN]"));
  EXPECT_TRUE(contains(error_of([&] { SafetensorsFile file("/dev/null"); }), "[E-ST-OPEN]"));
  EXPECT_TRUE(
      contains(error_of([&] { SafetensorsFile file(folder / "empty"); }), "byte 0 [E-ST-SHORT]"));
}

TEST(Safetensors, AMissingTensorIsNamedWithItsNearestNeighbour) {
  const TempFolder folder;
  const std::string data(4, '\0');
  write_safetensors(
      folder / "n",
      std::vector<TensorToStore>{
          {"layers.0.attn.wq_a.weight", StoredDtype::F32, {1}, std::as_bytes(std::span(data))}});
  const SafetensorsFile file(folder / "n");
  EXPECT_EQ(file.find("layers.0.attn.wq_b.weight"), nullptr);
  const auto text = error_of([&] { (void)file.at("layers.0.attn.wq_b.weight"); });
  EXPECT_TRUE(contains(text, "[E-ST-MISSING]")) << text;
  EXPECT_TRUE(contains(text, "did you mean 'layers.0.attn.wq_a.weight'?")) << text;
}

TEST(Safetensors, AFileCutWhileItIsOpenIsAnErrorNotACrash) {
  const TempFolder folder;
  write_safetensors(folder / "cut", vector_tensors());
  const SafetensorsFile file(folder / "cut");
  std::filesystem::resize_file(folder / "cut", 16);
  EXPECT_TRUE(contains(error_of([&] { (void)file.bytes(file.at("a")); }), "[E-ST-CHANGED]"));
}

TEST(Safetensors, AFailedWriteLeavesTheOldFileAndNoTemporaryOne) {
  const TempFolder folder;
  write_file_atomically(folder / "w", std::string_view("old"));
  auto tensors = vector_tensors();
  tensors[1].shape = {3};
  EXPECT_TRUE(contains(error_of([&] { write_safetensors(folder / "w", tensors); }),
                       "[E-ST-LENGTH]: tensor 'a' must bring 12 bytes, got 8"));
  EXPECT_EQ(read_text_file(folder / "w"), "old");
  EXPECT_EQ(folder.num_files(), 1u);
}

TEST(Safetensors, WritingOverAMappedFileLeavesItsReaderIntact) {
  const TempFolder folder;
  write_safetensors(folder / "r", vector_tensors());
  const SafetensorsFile before(folder / "r");
  write_safetensors(folder / "r", std::vector<TensorToStore>{});
  EXPECT_EQ(copy_elements<float>(before.bytes(before.at("a")))[0], 1.0f);
  EXPECT_TRUE(SafetensorsFile(folder / "r").tensors().empty());
}

TEST(Safetensors, TheGoldenFilesAreReadable) {
  const SafetensorsFile file(LETHE_GOLDEN_DIR "/T/weights.safetensors");
  EXPECT_FALSE(file.tensors().empty());
  int64_t num_bytes = 0;
  for (const auto& tensor : file.tensors()) num_bytes += tensor.num_bytes;
  EXPECT_EQ(
      file.tensors().front().begin + num_bytes,
      static_cast<int64_t>(std::filesystem::file_size(LETHE_GOLDEN_DIR "/T/weights.safetensors")));
}

}  // namespace
}  // namespace lethe
