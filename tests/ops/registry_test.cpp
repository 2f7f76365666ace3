#include "lethe/ops/registry.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

namespace lethe {
namespace {

namespace fs = std::filesystem;

std::string all_text(const fs::path& folder, const std::string& suffix) {
  std::stringstream text;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().string().ends_with(suffix)) text << std::ifstream(entry.path()).rdbuf();
  return text.str();
}

// Forgetting one of an operator's places is the error this test is for (style 6.2).
TEST(Registry, EveryOperatorHasContractReferenceTestAndAllDevices) {
  const fs::path root = LETHE_SOURCE_DIR;
  const std::string contracts = all_text(root / "lethe/ops", ".h"),
                    references = all_text(root / "lethe/ops/reference", ".cpp"),
                    tests = all_text(root / "tests/ops", "_test.cpp");
  const auto operators = ops::registered_operators();
  EXPECT_GE(operators.size(), 20u);
  for (const ops::OperatorInfo& op : operators) {
    EXPECT_EQ(op.devices, (std::vector<std::string>{"CPU", "CUDA", "Meta"})) << op.name;
    EXPECT_NE(contracts.find(" " + op.name + "("), std::string::npos)
        << op.name << " has no contract header";
    EXPECT_NE(references.find(" " + op.name), std::string::npos) << op.name << " has no reference";
    EXPECT_NE(tests.find(op.name), std::string::npos) << op.name << " has no test";
  }
}

}  // namespace
}  // namespace lethe
