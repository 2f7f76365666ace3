#include "lethe/io/checkpoint_folder.h"

#include <cstring>
#include <fstream>
#include <functional>

#include "support/file_size_limit.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>

#include "lethe/base/error.h"
#include "lethe/io/atomic_file.h"
#include "lethe/io/checkpoint_saver.h"
#include "lethe/io/checksum.h"

namespace lethe {
namespace {

namespace fs = std::filesystem;

std::string error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return std::string(error.kind()) + ": " + error.what();
  }
  return "no error";
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

std::vector<TensorToStore> tensors_over(const std::vector<float>& values) {
  return {{"a.weight|box=0:2,0:3", StoredDtype::F32, {2, 3}, std::as_bytes(std::span(values))},
          {"empty|box=0:0", StoredDtype::F32, {0}, {}}};
}

CheckpointParts parts_of(int64_t step, const std::vector<float>& values) {
  CheckpointParts parts{.step = step,
                        .contract_version = 1,
                        .writer = "test",
                        .layout = {{"tp", 1}},
                        .common = "{\"step\":" + std::to_string(step) + "}",
                        .files = {},
                        .sha256 = false};
  parts.files.push_back({"w-00000-of-00001.safetensors", tensors_over(values)});
  return parts;
}

const std::vector<float> kValues{1, 2, 3, 4, 5, 6};

void save(const fs::path& folder, int64_t step, const std::vector<float>& values = kValues) {
  commit_checkpoint(folder, write_unfinished(folder, parts_of(step, values)), step);
}

OpenedCheckpoint open(const fs::path& folder, bool fallback = false) {
  std::string message;
  return open_latest(folder, 1, fallback, message);
}

std::vector<float> values_in(const OpenedCheckpoint& opened) {
  const SafetensorsFile& file = opened.file("w-00000-of-00001.safetensors");
  return copy_elements<float>(file.bytes(file.at("a.weight|box=0:2,0:3")));
}

size_t entries_with(const fs::path& folder, std::string_view prefix) {
  size_t count = 0;
  for (const auto& entry : fs::directory_iterator(folder))
    count += entry.path().filename().string().starts_with(prefix) ? 1 : 0;
  return count;
}

void flip_bit(const fs::path& path, size_t byte, int bit) {
  std::string text = read_text_file(path);
  text[byte] = static_cast<char>(text[byte] ^ (1 << bit));
  std::ofstream(path, std::ios::binary) << text;
}

TEST(CheckpointFolder, WhatIsSavedComesBackByteForByte) {
  const test::TempFolder folder;
  save(folder.path(), 100);
  const OpenedCheckpoint opened = open(folder.path());
  EXPECT_EQ(opened.manifest().step, 100);
  EXPECT_EQ(opened.common(), "{\"step\":100}");
  EXPECT_EQ(values_in(opened), kValues);
  EXPECT_EQ(read_text_file(folder / "LATEST"), "step-0000000100\n");
  EXPECT_EQ(entries_with(folder.path(), "."), 0u);
}

TEST(CheckpointFolder, EveryFlippedBitIsFoundAndNamed) {
  const test::TempFolder folder;
  save(folder.path(), 7);
  const fs::path step = folder / step_name(7);
  for (const char* name : {"manifest.json", "common.json", "w-00000-of-00001.safetensors"}) {
    const size_t size = read_text_file(step / name).size();
    for (size_t byte = 0; byte < size; ++byte) {
      const int bit = static_cast<int>(byte % 8);
      flip_bit(step / name, byte, bit);
      const std::string error = error_of([&] { open(folder.path()); });
      // A flip in a safetensors header or its padding may also be a rule of that format.
      EXPECT_HAS(error, "[E-CKPT-DAMAGED]") << name << " byte " << byte;
      EXPECT_HAS(error, "step-0000000007");
      flip_bit(step / name, byte, bit);
    }
  }
  EXPECT_EQ(values_in(open(folder.path())), kValues);
}

TEST(CheckpointFolder, ADamagedChunkIsNamedWithItsRule) {
  const test::TempFolder folder;
  save(folder.path(), 7);
  const fs::path data = folder / step_name(7) / "w-00000-of-00001.safetensors";
  flip_bit(data, fs::file_size(data) - 1, 0);
  const std::string error = error_of([&] { open(folder.path()); });
  EXPECT_HAS(error, "[E-CKPT-CRC]");
  EXPECT_HAS(error, "'a.weight|box=0:2,0:3'");
  fs::resize_file(data, fs::file_size(data) - 1);
  EXPECT_HAS(error_of([&] { open(folder.path()); }), "[E-CKPT-FILE]");
  fs::remove(data);
  EXPECT_HAS(error_of([&] { open(folder.path()); }), "[E-CKPT-FILE]");
}

TEST(CheckpointFolder, Sha256OfTheDataIsCheckedWhereItWasTaken) {
  const test::TempFolder folder;
  CheckpointParts parts = parts_of(3, kValues);
  parts.sha256 = true;
  commit_checkpoint(folder.path(), write_unfinished(folder.path(), parts), 3);
  EXPECT_EQ(values_in(open(folder.path())), kValues);
  const fs::path data = folder / step_name(3) / "w-00000-of-00001.safetensors";
  flip_bit(data, fs::file_size(data) - 1, 0);
  EXPECT_HAS(error_of([&] { open(folder.path()); }), "[E-CKPT-SHA256]");
}

TEST(CheckpointFolder, ADamagedNewestOneIsRefusedUnlessFallbackIsAllowed) {
  const test::TempFolder folder;
  save(folder.path(), 10, {10, 2, 3, 4, 5, 6});
  save(folder.path(), 20, {20, 2, 3, 4, 5, 6});
  save(folder.path(), 30, {30, 2, 3, 4, 5, 6});
  for (const int64_t step : {20, 30}) fs::resize_file(folder / step_name(step) / "common.json", 3);
  const std::string error = error_of([&] { open(folder.path()); });
  EXPECT_HAS(error, "step-0000000030");
  EXPECT_HAS(error, "step-0000000010, step-0000000020");
  EXPECT_HAS(error, "--allow-fallback-checkpoint");
  std::string message;
  const OpenedCheckpoint opened = open_latest(folder.path(), 1, true, message);
  EXPECT_EQ(opened.manifest().step, 10);
  EXPECT_EQ(values_in(opened)[0], 10);
  EXPECT_HAS(message, "step-0000000030 is damaged");
  EXPECT_HAS(message, "going on from step-0000000010");
  fs::resize_file(folder / step_name(10) / "common.json", 3);
  EXPECT_HAS(error_of([&] { open(folder.path(), true); }), "[E-CKPT-DAMAGED]");
}

TEST(CheckpointFolder, FoldersWithoutOurCheckpointsAreRefused) {
  const test::TempFolder folder;
  EXPECT_HAS(error_of([&] { open(folder / "none"); }), "[E-CKPT-NONE]");
  EXPECT_HAS(error_of([&] { open(folder.path()); }), "[E-CKPT-NONE]");
  save(folder / "checkpoints", 5);
  EXPECT_HAS(error_of([&] { open(folder.path()); }), "did you mean --load ");
  fs::remove_all(folder / "checkpoints");
  save(folder.path(), 5);
  fs::remove(folder / "LATEST");
  EXPECT_HAS(error_of([&] { open(folder.path()); }), "--allow-fallback-checkpoint");
  EXPECT_EQ(open(folder.path(), true).manifest().step, 5);
  for (const char* text : {"", "step-5\n", "step-0000000005", "100\n", "step-00000000x5\n"}) {
    write_file_atomically(folder / "LATEST", text);
    EXPECT_HAS(error_of([&] { open(folder.path()); }), "[E-CKPT-LATEST]");
  }
  write_file_atomically(folder / "LATEST", "step-0000000006\n");
  EXPECT_HAS(error_of([&] { open(folder.path()); }), "[E-CKPT-DAMAGED]");
  fs::create_directory(folder / "iter_0000100");
  EXPECT_HAS(error_of([&] { open(folder.path()); }), "[E-CKPT-FOREIGN]");
}

TEST(CheckpointFolder, AnotherContractOrAManifestOfAnotherStepIsRefused) {
  const test::TempFolder folder;
  save(folder.path(), 5);
  std::string message;
  EXPECT_HAS(error_of([&] { (void)open_latest(folder.path(), 2, true, message); }),
             "[E-CKPT-CONTRACT]: the contract version must be 2, got 1");
  fs::rename(folder / step_name(5), folder / step_name(6));
  write_file_atomically(folder / "LATEST", "step-0000000006\n");
  EXPECT_HAS(error_of([&] { open(folder.path()); }), "[E-CKPT-STEP]");
}

TEST(CheckpointFolder, RetentionKeepsTheNewestTheRetainedAndLatest) {
  const test::TempFolder folder;
  for (int64_t step = 10; step <= 60; step += 10) save(folder.path(), step);
  EXPECT_EQ(prune(folder.path(), {.keep_last = 2, .retain_interval = 30}),
            (std::vector<int64_t>{10, 20, 40}));
  EXPECT_EQ(steps_in(folder.path()), (std::vector<int64_t>{30, 50, 60}));
  // As after a fallback: what lies beyond LATEST is not counted.
  write_file_atomically(folder / "LATEST", "step-0000000050\n");
  EXPECT_TRUE(prune(folder.path(), {.keep_last = 2}).empty());
  EXPECT_EQ(steps_in(folder.path()), (std::vector<int64_t>{30, 50, 60}));
}

TEST(CheckpointFolder, LeftoversOfKilledSavesAndRemovalsAreCleared) {
  const test::TempFolder folder;
  save(folder.path(), 1);
  (void)write_unfinished(folder.path(), parts_of(2, kValues));  // killed before its commit
  fs::create_directory(folder / ".trash-step-0-9-9");
  EXPECT_EQ(open(folder.path()).manifest().step, 1);
  EXPECT_TRUE(prune(folder.path(), {}).empty());
  EXPECT_EQ(entries_with(folder.path(), "."), 0u);
}

TEST(CheckpointFolder, TheSameCheckpointStaysAndAnotherOrADamagedOneIsReplaced) {
  const test::TempFolder folder;
  save(folder.path(), 4);
  const auto commit = [&](const std::vector<float>& values) {
    return commit_checkpoint(
        folder.path(), write_unfinished(folder.path(), parts_of(4, values)), 4);
  };
  EXPECT_FALSE(commit(kValues));
  const std::vector<float> others{9, 9, 9, 9, 9, 9};
  EXPECT_TRUE(commit(others));
  EXPECT_EQ(values_in(open(folder.path())), others);
  fs::resize_file(folder / step_name(4) / "common.json", 1);
  EXPECT_TRUE(commit(others));
  EXPECT_EQ(values_in(open(folder.path())), others);
  EXPECT_EQ(entries_with(folder.path(), "."), 0u);
}

TEST(CheckpointFolder, AFullDiskLeavesTheLastCheckpointAndNoLeftover) {
  const test::TempFolder folder;
  save(folder.path(), 1);
  const std::vector<float> large(1 << 16, 1.0F);
  CheckpointParts parts = parts_of(2, kValues);
  parts.files.push_back(
      {"o-00000-of-00001.safetensors",
       {{"m|box=0:65536", StoredDtype::F32, {1 << 16}, std::as_bytes(std::span(large))}}});
  {
    const test::FileSizeLimit limit(1 << 14);
    EXPECT_HAS(error_of([&] { (void)write_unfinished(folder.path(), parts); }), "DataError");
  }
  EXPECT_EQ(entries_with(folder.path(), "."), 0u);
  EXPECT_EQ(open(folder.path()).manifest().step, 1);
}

CheckpointSaver::Settings background(const fs::path& folder, AsyncSavePolicy policy) {
  return {.folder = folder, .retention = {}, .in_background = true, .policy = policy};
}

TEST(CheckpointSaver, ABackgroundSaveHoldsTheValuesOfItsMoment) {
  const test::TempFolder folder;
  CheckpointSaver saver(background(folder.path(), AsyncSavePolicy::Wait));
  std::vector<float> values = kValues;
  EXPECT_TRUE(saver.save(parts_of(1, values), false).committed.empty());
  values.assign(6, -1);
  const auto saved = saver.wait();
  ASSERT_TRUE(saved.has_value());
  EXPECT_EQ(saved->step, 1);
  EXPECT_EQ(saved->num_bytes, 24);
  EXPECT_EQ(values_in(open(folder.path())), kValues);
}

TEST(CheckpointSaver, NothingIsCommittedBeforeTheNextBoundary) {
  const test::TempFolder folder;
  {
    CheckpointSaver saver(background(folder.path(), AsyncSavePolicy::Wait));
    (void)saver.save(parts_of(1, kValues), false);
  }
  EXPECT_TRUE(steps_in(folder.path()).empty());
  EXPECT_EQ(entries_with(folder.path(), "."), 0u);  // the dropped save took its folder along
}

TEST(CheckpointSaver, ASecondRequestWaitsForTheFirst) {
  const test::TempFolder folder;
  CheckpointSaver saver(background(folder.path(), AsyncSavePolicy::Wait));
  (void)saver.save(parts_of(1, kValues), false);
  const auto first = saver.save(parts_of(2, kValues), false).committed;
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].step, 1);
  const auto rest = saver.save(parts_of(3, kValues), true).committed;
  ASSERT_EQ(rest.size(), 2u);
  EXPECT_EQ(rest[0].step, 2);
  EXPECT_EQ(rest[1].step, 3);
  EXPECT_EQ(rest[1].removed, (std::vector<int64_t>{1}));
  EXPECT_EQ(open(folder.path()).manifest().step, 3);
}

TEST(CheckpointSaver, PolicySkipNeverWaitsAndLosesNoEarlierSave) {
  const test::TempFolder folder;
  CheckpointSaver saver(background(folder.path(), AsyncSavePolicy::Skip));
  std::vector<int64_t> committed;
  size_t left_out = 0;
  const std::vector<float> large(1 << 20, 1.0F);
  for (int64_t step = 1; step <= 20; ++step) {
    CheckpointParts parts = parts_of(step, kValues);
    parts.files[0].tensors.push_back(
        {"l|box=0:1048576", StoredDtype::F32, {1 << 20}, std::as_bytes(std::span(large))});
    const SaveOutcome outcome = saver.save(parts, false);
    left_out += outcome.left_out ? 1 : 0;
    for (const SavedCheckpoint& saved : outcome.committed) committed.push_back(saved.step);
  }
  if (const auto last = saver.wait()) committed.push_back(last->step);
  ASSERT_FALSE(committed.empty());
  EXPECT_TRUE(std::is_sorted(committed.begin(), committed.end()));
  EXPECT_GT(left_out, 0u);  // twenty 4 MB saves without a pause
  EXPECT_EQ(committed.size() + left_out, 20u);
  EXPECT_EQ(open(folder.path()).manifest().step, committed.back());
}

TEST(CheckpointSaver, AFailureInTheBackgroundSurfacesAtTheNextBoundary) {
  const test::TempFolder folder;
  CheckpointSaver saver(background(folder.path(), AsyncSavePolicy::Wait));
  (void)saver.save(parts_of(1, kValues), true);
  const std::vector<float> large(1 << 16, 1.0F);
  CheckpointParts parts = parts_of(2, kValues);
  parts.files[0].tensors.push_back(
      {"l|box=0:65536", StoredDtype::F32, {1 << 16}, std::as_bytes(std::span(large))});
  {
    const test::FileSizeLimit limit(1 << 14);
    (void)saver.save(parts, false);
    EXPECT_HAS(error_of([&] { saver.wait(); }), "DataError");
    (void)saver.save(parts, false);
    const SaveOutcome second = saver.save(parts_of(3, kValues), true);  // goes on all the same
    EXPECT_TRUE(second.earlier_failure != nullptr);
    EXPECT_EQ(second.committed.size(), 1u);
  }
  EXPECT_FALSE(saver.wait().has_value());
  EXPECT_EQ(open(folder.path()).manifest().step, 3);
  (void)saver.save(parts, false);
  EXPECT_EQ(saver.wait()->step, 2);
}

TEST(CheckpointManifest, OnlyItsOwnTextIsRead) {
  CheckpointManifest m{.contract_version = 1, .step = 3, .writer = "w", .layout = {{"tp", 1}}};
  m.files = {{"a.safetensors", 10, 7, ""}};
  m.chunks = {{"x|box=", "a.safetensors", 4, 0xffffffff}};
  const std::string text = manifest_text(m);
  EXPECT_EQ(parse_manifest(text, "m"), m);
  EXPECT_HAS(error_of([&] { (void)parse_manifest(text + " ", "m"); }), "[E-CKPT-MANIFEST]");
  EXPECT_HAS(error_of([&] { (void)parse_manifest("{}", "m"); }), "no 'manifest'");
  m.chunks.push_back(m.chunks[0]);
  EXPECT_HAS(error_of([&] { (void)parse_manifest(manifest_text(m), "m"); }), "[E-CKPT-CHUNK]");
  m.chunks.clear();
  m.files = {{"../a", 10, 0, ""}};
  EXPECT_HAS(error_of([&] { (void)parse_manifest(manifest_text(m), "m"); }), "[E-CKPT-NAME]");
  // As a later version would write it: with a sum of its own.
  std::string body = R"({"container_version":2})";
  const uint32_t sum = crc32c(std::as_bytes(std::span(body)));
  const std::string newer = "{\"crc32c\":" + std::to_string(sum) + ",\"manifest\":" + body + "}";
  EXPECT_HAS(error_of([&] { (void)parse_manifest(newer, "m"); }), "[E-CKPT-CONTAINER]");
}

}  // namespace
}  // namespace lethe
