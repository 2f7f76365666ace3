#include "lethe/checkpoint/hub_weights.h"

#include <filesystem>

#include "support/gradcheck.h"
#include "support/tiny_model.h"
#include <gtest/gtest.h>
#include <unistd.h>

#include <ATen/ops/randn.h>

#include "lethe/base/error.h"
#include "lethe/checkpoint/tensor_file.h"

namespace lethe {
namespace {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// A model's weights on disk, which a test may change before they are read again.
class HubWeights : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = (std::filesystem::temp_directory_path() /
             fmt::format("lethe_hub_{}.safetensors", ::getpid()))
                .string();
    model_ = test::lively_model(test::tiny_a(), {}, 11);
    export_hub_weights(model_->config(), model_->params(), path_);
  }

  void TearDown() override { std::filesystem::remove(path_); }

  void rewrite(const std::function<void(NamedTensors&)>& edit) {
    NamedTensors tensors;
    {
      const TensorFile file(path_);
      for (const std::string& name : file.names()) tensors.emplace_back(name, file.read(name));
    }
    edit(tensors);
    write_tensor_file(path_, tensors);
  }

  // The rule that refuses the file, or "" when it is read.
  std::string refused() {
    DeepseekV4 fresh(test::tiny_a(), {});
    try {
      import_hub_weights(TensorFile(path_), fresh.config(), fresh.params());
    } catch (const CheckpointError& error) {
      const std::string text = error.what();
      return text.substr(text.find('['), text.find(']') - text.find('[') + 1);
    }
    return "";
  }

  std::string path_;
  std::unique_ptr<DeepseekV4> model_;
};

at::Tensor& find(NamedTensors& tensors, const std::string& name) {
  for (auto& [key, value] : tensors)
    if (key == name) return value;
  throw std::runtime_error("no tensor " + name);
}

TEST_F(HubWeights, ExportThenImportKeepsEveryBit) {
  DeepseekV4 fresh(test::tiny_a(), {});
  import_hub_weights(TensorFile(path_), fresh.config(), fresh.params());
  for (size_t i = 0; i < fresh.params().size(); ++i)
    test::expect_bitwise(
        fresh.params().value(i), model_->params().value(i), fresh.params().row(i).name);
}

TEST_F(HubWeights, AMissingTensorIsEMissing) {
  rewrite([](NamedTensors& t) { t.erase(t.begin() + 3); });
  EXPECT_EQ(refused(), "[E-MISSING]");
}

TEST_F(HubWeights, AnUnexpectedTensorIsEUnexpected) {
  rewrite([](NamedTensors& t) { t.emplace_back("layers.0.attn.extra.weight", at::zeros({2})); });
  EXPECT_EQ(refused(), "[E-UNEXPECTED]");
}

TEST_F(HubWeights, AWrongShapeIsEShape) {
  rewrite([](NamedTensors& t) { find(t, "norm.weight") = at::zeros({63}); });
  EXPECT_EQ(refused(), "[E-SHAPE]");
}

TEST_F(HubWeights, AnExpertBeyondTheLastIsEHashRange) {
  rewrite([](NamedTensors& t) { find(t, "layers.0.ffn.gate.tid2eid")[5][1] = 8; });
  EXPECT_EQ(refused(), "[E-HASH-RANGE]");
}

TEST_F(HubWeights, ARepeatedExpertInOneRowIsEHashRange) {
  rewrite([](NamedTensors& t) {
    at::Tensor row = find(t, "layers.0.ffn.gate.tid2eid")[5];
    row.copy_(row[0].expand({2}).clone());
  });
  EXPECT_EQ(refused(), "[E-HASH-RANGE]");
}

TEST_F(HubWeights,
       Fp32KeptTensorsSurviveABf16Model) {  // known failure V2: 1 + 2^-12 must not be rounded
  const double value = 1.0 + 1.0 / 4096;
  rewrite([&](NamedTensors& t) { find(t, "layers.0.hc_attn_base").fill_(value); });
  DeepseekV4 fresh(test::tiny_a(), {.float_type = ParamPlacement::Float::Bf16});
  import_hub_weights(TensorFile(path_), fresh.config(), fresh.params());
  const at::Tensor base =
      fresh.params().value("decoder.layers.0.self_attention_hyper_connection.bias");
  EXPECT_EQ(base[0].item<double>(), value);
}

TEST(Contract,
     EveryHubTensorCoversItsInternalElementsOnce) {  // the E-UNCOVERED proof on the table itself
  const auto params = contract(test::tiny_a());
  std::vector<int64_t> written(params.size());
  for (const DiskTensor& t : disk_tensors(params, Dialect::Hub))
    for (const Piece& piece : t.pieces) {
      int64_t row = 1;
      for (size_t d = params[piece.param].stacked ? 2 : 1; d < params[piece.param].shape.size();
           ++d)
        row *= params[piece.param].shape[d];
      written[piece.param] += piece.rows * row;
    }
  for (size_t i = 0; i < params.size(); ++i)
    EXPECT_EQ(written[i], params[i].numel()) << params[i].name;
}

}  // namespace
}  // namespace lethe
