#include "lethe/train/compare.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "lethe/base/error.h"
#include "lethe/checkpoint/tensor_file.h"

namespace lethe {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = LETHE_GOLDEN_DIR;

void expect_all_pass(const std::string& set, CompareDtype dtype, size_t at_least) {
  const auto rows = compare_folder(kGolden / set, dtype);
  size_t passed = 0;
  for (const CompareRow& row : rows) {
    EXPECT_NE(row.verdict, CompareRow::Verdict::Miss)
        << row.name << " " << row.max_abs << " of " << row.allowed << " " << row.note;
    passed += row.verdict == CompareRow::Verdict::Pass ? 1 : 0;
  }
  EXPECT_GE(passed, at_least);
  EXPECT_TRUE(all_pass(rows));
}

// Counts: tests/golden/README.md's files hold so many tensors.
TEST(Compare, SetTAgreesInFloat32) {
  expect_all_pass("T", CompareDtype::Fp32, 400);
}

TEST(Compare, SetTAgreesInFloat64) {
  expect_all_pass("T", CompareDtype::Fp64, 400);
}

TEST(Compare, SetVAgreesInFloat32) {
  expect_all_pass("V", CompareDtype::Fp32, 400);
}

TEST(Compare, SetVAgreesInFloat64) {
  expect_all_pass("V", CompareDtype::Fp64, 400);
}

// A copy of set V that a test may damage.
class DamagedSet : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("lethe_compare_{}", ::getpid());
    fs::remove_all(folder_);
    fs::copy(kGolden / "V", folder_);
  }

  void TearDown() override { fs::remove_all(folder_); }

  void change(const char* file,
              const std::string& tensor,
              const std::function<void(at::Tensor)>& edit) {
    std::vector<std::pair<std::string, at::Tensor>> tensors;
    {
      const TensorFile in((folder_ / file).string());
      for (const std::string& name : in.names()) tensors.emplace_back(name, in.read(name));
    }
    for (auto& [name, value] : tensors)
      if (name == tensor) edit(value);
    write_tensor_file((folder_ / file).string(), tensors);
  }

  CompareRow row(const std::string& name) {
    for (const CompareRow& r : compare_folder(folder_, CompareDtype::Fp32))
      if (r.name == name) return r;
    return not_compared(name, "no such row");
  }

  fs::path folder_;
};

TEST_F(DamagedSet, OneChangedGradientElementIsTheWorstRow) {
  change("grads.safetensors", "layers.1.attn.wq_a.weight", [](const at::Tensor& t) {
    t.view({-1})[17].add_(0.1);
  });
  const auto rows = compare_folder(folder_, CompareDtype::Fp32);
  EXPECT_EQ(rows.front().name, "grad layers.1.attn.wq_a.weight");
  EXPECT_EQ(rows.front().verdict, CompareRow::Verdict::Miss);
  EXPECT_FALSE(all_pass(rows));
}

TEST_F(DamagedSet, OneChangedIndexMisses) {
  change("forward.safetensors", "layers.1.attn.indexer.topk", [](const at::Tensor& t) {
    t.view({-1})[t.numel() / 2].add_(1);
  });
  EXPECT_EQ(row("layers.1.attn.indexer.topk").verdict, CompareRow::Verdict::Miss);
}

TEST_F(DamagedSet, WithoutMtpFilesTheBlockIsNotComparedAndTheRestPasses) {
  fs::remove(folder_ / "mtp.safetensors");
  fs::remove(folder_ / "grad_norms_total.json");
  fs::remove(folder_ / "tolerance.json");
  EXPECT_TRUE(all_pass(compare_folder(folder_, CompareDtype::Fp32)));
  EXPECT_EQ(row("mtp.safetensors").verdict, CompareRow::Verdict::NotCompared);
}

TEST_F(DamagedSet, AWeightOfTheWrongShapeIsNamed) {
  std::ifstream in(folder_ / "config.json");
  std::stringstream text;
  text << in.rdbuf();
  std::string config = text.str();
  const auto at = config.find("\"q_lora_rank\": 32");
  ASSERT_NE(at, std::string::npos);
  config.replace(at, 17, "\"q_lora_rank\": 16");
  std::ofstream(folder_ / "config.json") << config;
  EXPECT_THROW(compare_folder(folder_, CompareDtype::Fp32), CheckpointError);
}

TEST_F(DamagedSet, DocumentsThatDoNotFillTheRowAreRefused) {
  std::ofstream(folder_ / "run.json") << R"({"documents": [133, 1]})";
  EXPECT_THROW(compare_folder(folder_, CompareDtype::Fp32), DataError);
}

TEST(Compare, AMissingFolderIsADataError) {
  EXPECT_THROW(compare_folder("/nonexistent", CompareDtype::Fp32), DataError);
}

}  // namespace
}  // namespace lethe
