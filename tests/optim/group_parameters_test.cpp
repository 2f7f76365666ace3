#include "lethe/optim/group_parameters.h"

#include <algorithm>
#include <map>
#include <string>

#include "support/tiny_configs.h"
#include <gtest/gtest.h>

#include "lethe/base/error.h"
#include "lethe/model/param_rows.h"
#include "lethe/optim/group_table.h"

namespace lethe {
namespace {

// Shapes are enough: nothing here reads a weight.
ParamStore store_of(const ModelConfig& config,
                    ParamPlacement::Float type = ParamPlacement::Float::Fp32) {
  return ParamStore(param_rows(config),
                    {.float_type = type, .device = ParamPlacement::Device::Meta});
}

const ParameterLine& line_of(const std::vector<GroupLine>& table, const std::string& name) {
  for (const GroupLine& group : table)
    for (const ParameterLine& line : group.parameters)
      if (line.name == name) return line;
  throw std::out_of_range(name);
}

std::string matrices_of(const ParameterLine& line) {
  return fmt::format("{} x [{},{}]", line.matrices, line.matrix_rows, line.matrix_cols);
}

TEST(GroupParameters, AdamwKeepsMatricesBeforeVectorsInTheOrderOfTheStore) {
  const ParamStore store = store_of(test::tiny_a());
  const auto groups = group_parameters(store, {});
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].weight_decay, 0.1);
  EXPECT_EQ(groups[1].weight_decay, 0);
  size_t at[2] = {0, 0};
  for (size_t i = 0; i < store.size(); ++i) {
    if (!store.value(i).requires_grad()) continue;
    const size_t g = store.value(i).dim() > 1 ? 0 : 1;
    EXPECT_EQ(groups[g].names[at[g]++], store.row(i).name);
  }
  EXPECT_EQ(at[0], groups[0].names.size());
  EXPECT_EQ(at[1], groups[1].names.size());
}

TEST(GroupParameters, FrozenParametersAndBuffersAreInNoGroup) {
  ParamStore store = store_of(test::tiny_a());
  store.set_trained(
      [](const ParamRow& row) { return row.name.find("core_attention") == std::string::npos; });
  for (const auto kind : {OptimizerKind::AdamW, OptimizerKind::Muon})
    for (const ParameterGroup& group : group_parameters(store, {.kind = kind}))
      for (const std::string& name : group.names) {
        EXPECT_EQ(name.find("core_attention"), std::string::npos);
        EXPECT_EQ(name.find("expert_bias"), std::string::npos);
        EXPECT_EQ(name.find("tid2eid"), std::string::npos);
      }
}

// Model spec 12, name by name: what is not here is Muon's.
bool adamw_by_the_specification(const std::string& name) {
  for (const char* part : {"word_embeddings",
                           "output_layer",
                           "norm.weight",
                           "hc_head_base",
                           "hc_head_scale",
                           "hyper_connection.bias",
                           "alpha_",
                           "attn_sink",
                           ".ape"})
    if (name.find(part) != std::string::npos) return true;
  return false;
}

TEST(GroupParameters, MuonTakesEverythingButWhatTheSpecificationNames) {
  const ParamStore store = store_of(test::tiny_a());
  const auto groups = group_parameters(
      store,
      {.kind = OptimizerKind::Muon,
       .weight_decays = {.muon_matrices = 0.3, .adamw_matrices = 0.2, .adamw_vectors = 0.1}});
  ASSERT_EQ(groups.size(), 3u);
  const Rule rules[] = {Rule::Muon, Rule::AdamW, Rule::AdamW};
  const double decays[] = {0.3, 0.2, 0.1};
  size_t count = 0;
  for (size_t g = 0; g < 3; ++g) {
    EXPECT_EQ(groups[g].rule, rules[g]);
    EXPECT_EQ(groups[g].weight_decay, decays[g]);
    for (const std::string& name : groups[g].names)
      EXPECT_EQ(adamw_by_the_specification(name), rules[g] == Rule::AdamW) << name;
    count += groups[g].names.size();
  }
  size_t trained = 0;
  for (size_t i = 0; i < store.size(); ++i) trained += store.value(i).requires_grad() ? 1 : 0;
  EXPECT_EQ(count, trained);
}

TEST(GroupParameters, MuonSplitsWhereMatricesAreIndependent) {
  const ParamStore store = store_of(test::tiny_a());
  const auto table = group_table(group_parameters(store, {.kind = OptimizerKind::Muon}));
  const std::string layer = "decoder.layers.1.", attention = layer + "self_attention.",
                    core = attention + "core_attention.";
  const std::map<std::string, std::string> expected = {
      {layer + "mlp.experts.fc1", "16 x [32,64]"},  // 8 experts, gate and up
      {layer + "mlp.experts.fc2", "8 x [64,32]"},
      {layer + "mlp.shared_experts.linear_fc1.weight", "2 x [32,64]"},
      {layer + "mlp.shared_experts.linear_fc2.weight", "1 x [64,32]"},
      {layer + "mlp.router.weight", "1 x [8,64]"},
      {attention + "linear_q_down_proj.weight", "1 x [32,64]"},
      {attention + "linear_q_up_proj.weight", "1 x [128,32]"},
      {attention + "linear_kv_proj.weight", "1 x [32,64]"},
      {attention + "linear_o_group_proj", "2 x [16,64]"},  // groups
      {attention + "linear_proj.weight", "1 x [64,32]"},
      {core + "compressor.linear_wkv.weight", "2 x [32,64]"},  // overlapping halves
      {core + "compressor.linear_wgate.weight", "2 x [32,64]"},
      {core + "indexer.compressor.linear_wkv.weight", "2 x [16,64]"},
      {core + "indexer.compressor.linear_wgate.weight", "2 x [16,64]"},
      {core + "indexer.linear_wq_b.weight", "1 x [64,32]"},
      {core + "indexer.linear_weights_proj.weight", "1 x [4,64]"},
      {layer + "self_attention_hyper_connection.mapping_proj.weight", "1 x [24,256]"},
      {"decoder.hc_head_fn", "1 x [4,256]"},
      {"mtp.layers.0.e_proj.weight", "1 x [64,64]"},
      // Ratio 8 has no overlap: one matrix.
      {"decoder.layers.2.self_attention.core_attention.compressor.linear_wkv.weight",
       "1 x [32,64]"}};
  for (const auto& [name, matrices] : expected)
    EXPECT_EQ(matrices_of(line_of(table, name)), matrices) << name;
}

TEST(GroupParameters, HeadsAreSplitOnDemandAndNothingElseChanges) {
  const ParamStore store = store_of(test::tiny_a());
  const auto whole = group_table(group_parameters(store, {.kind = OptimizerKind::Muon})),
             split = group_table(
                 group_parameters(store, {.kind = OptimizerKind::Muon, .muon_split_heads = true}));
  for (const ParameterLine& line : split[0].parameters) {
    const bool main = line.name.ends_with("linear_q_up_proj.weight"),
               index = line.name.ends_with("indexer.linear_wq_b.weight");
    EXPECT_EQ(matrices_of(line),
              main    ? "4 x [32,32]"
              : index ? "4 x [16,32]"
                      : matrices_of(line_of(whole, line.name)))
        << line.name;
  }
}

// Which weights of a model stored in bfloat16 are float32 (model spec 12.1).
TEST(Bfloat16Storage, TheIslandsOfTheSpecificationStayFloat32) {
  const ParamStore store = store_of(test::tiny_a(), ParamPlacement::Float::Bf16);
  size_t narrow = 0;
  for (size_t i = 0; i < store.size(); ++i) {
    const std::string& name = store.row(i).name;
    if (store.row(i).is_integer) continue;
    bool island = name.ends_with("norm.weight");
    for (const char* part : {"hyper_connection", "hc_head", "attn_sink", ".ape", "expert_bias"})
      island = island || name.find(part) != std::string::npos;
    EXPECT_EQ(store.value(i).scalar_type(), island ? at::kFloat : at::kBFloat16) << name;
    narrow += island ? 0 : 1;
  }
  EXPECT_GT(narrow, 50u);
}

TEST(GroupTable, CountsElementsMatricesAndStateOfEveryGroup) {
  const ParamStore store = store_of(test::tiny_a(), ParamPlacement::Float::Bf16);
  const auto groups = group_parameters(store, {.kind = OptimizerKind::Muon});
  const auto table = group_table(groups);
  ASSERT_EQ(table.size(), 3u);
  for (size_t g = 0; g < 3; ++g) {
    int64_t elements = 0, state = 0;
    for (const at::Tensor& t : groups[g].tensors) {
      const int64_t tensors =
          (groups[g].rule == Rule::Muon ? 1 : 2) + (t.scalar_type() == at::kBFloat16 ? 1 : 0);
      elements += t.numel();
      state += 4 * tensors * t.numel();
    }
    EXPECT_EQ(table[g].elements(), elements);
    EXPECT_EQ(table[g].state_bytes(), state);
  }
  EXPECT_EQ(table[1].matrices(), 0);
  EXPECT_GT(table[0].matrices(), static_cast<int64_t>(groups[0].tensors.size()));
}

TEST(GroupTable, TheTextHasEveryGroupAndEveryParameter) {
  const ParamStore store = store_of(test::tiny_a());
  const auto groups = group_parameters(store, {.kind = OptimizerKind::Muon});
  const std::string text = group_table_text(group_table(groups));
  for (const char* part :
       {"group 0  muon  lr x 1, weight decay 0.1, momentum 0.95, update rms 0.18",
        "group 1  adamw  lr x 1, weight decay 0.1, betas 0.9 0.95, eps 1e-20",
        "group 2  adamw  lr x 1, weight decay 0,",
        "16 x [32,64]",
        "total "})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in:\n" << text;
  for (const ParameterGroup& group : groups)
    for (const std::string& name : group.names)
      EXPECT_NE(text.find("  " + name + " "), std::string::npos) << name;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'),
            static_cast<std::ptrdiff_t>(groups[0].names.size() + groups[1].names.size() +
                                        groups[2].names.size() + groups.size() + 1));
}

}  // namespace
}  // namespace lethe
