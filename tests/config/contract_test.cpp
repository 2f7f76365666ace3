#include "lethe/config/contract.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <set>

#include "config/models.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace lethe {
namespace {

using testing::tiny_a;
using testing::tiny_q;

TEST(Contract, FlashHasThePublishedTotals) {
  const ParamTotals totals = param_totals(recipe("flash"));
  EXPECT_EQ(totals.layers, 283273109074);
  EXPECT_EQ(totals.top, 1059131397);
  EXPECT_EQ(totals.mtp, 6610048891);
  EXPECT_EQ(totals.without_mtp(), 284332240471);
  EXPECT_EQ(totals.total(), 290942289362);
  EXPECT_EQ(totals.active_per_token, 13799632471);
}

TEST(Contract, ProHasThePublishedTotals) {
  const ParamTotals totals = param_totals(recipe("pro"));
  EXPECT_EQ(totals.layers, 1571143721822);
  EXPECT_EQ(totals.top, 1853479941);
  EXPECT_EQ(totals.mtp, 25840145979);
  EXPECT_EQ(totals.without_mtp(), 1572997201763);
  EXPECT_EQ(totals.total(), 1598837347742);
  EXPECT_EQ(totals.active_per_token, 49779081059);
}

TEST(Contract, TinyModelsHaveTheSpecifiedTotals) {
  const ParamTotals a = param_totals(tiny_a());
  EXPECT_EQ(a.layers, 356984);
  EXPECT_EQ(a.top, 17477);
  EXPECT_EQ(a.mtp, 90055);
  EXPECT_EQ(a.total(), 464516);
  EXPECT_EQ(param_totals(tiny_q()).total(), 1843140);
}

/// Tensors and bytes of an export whose Q8 and Q4 tensors are quantised as in the releases.
struct Histogram {
  std::map<QuantClass, int64_t> count;
  int64_t tensors = 0, release_bytes = 0, bf16_bytes = 0;
};

Histogram histogram(const char* name) {
  Histogram h;
  for (const DiskTensor& t : hub_tensors(recipe(name))) {
    ++h.count[t.quant];
    ++h.tensors;
    const int64_t numel = t.numel();
    h.bf16_bytes += numel * (t.dtype == DiskDtype::BF16 ? 2 : t.dtype == DiskDtype::F32 ? 4 : 8);
    const int64_t out = t.shape[0], in = t.shape.back();
    switch (t.quant) {
      case QuantClass::Q8:
        h.release_bytes += numel + (out + 127) / 128 * ((in + 127) / 128);
        break;
      case QuantClass::Q4:
        h.release_bytes += numel / 2 + numel / 32;
        break;
      case QuantClass::KB:
        h.release_bytes += numel * 2;
        break;
      case QuantClass::KF:
        h.release_bytes += numel * 4;
        break;
      case QuantClass::KI:
        h.release_bytes += numel * 8;
        break;
    }
  }
  return h;
}

TEST(Contract, FlashHubListMatchesThePublishedIndex) {
  Histogram h = histogram("flash");
  EXPECT_EQ(h.count[QuantClass::Q4], 33792);
  EXPECT_EQ(h.count[QuantClass::Q8], 375);
  EXPECT_EQ(h.count[QuantClass::KB], 433);
  EXPECT_EQ(h.count[QuantClass::KF], 417);
  EXPECT_EQ(h.count[QuantClass::KI], 3);
  EXPECT_EQ(h.tensors, 35020);
  EXPECT_EQ(h.tensors + 33792 + 375, 69187);
  EXPECT_EQ(h.bf16_bytes, 581975531080);
  EXPECT_EQ(h.release_bytes, 159609485896);
}

TEST(Contract, ProHubListMatchesThePublishedListing) {
  Histogram h = histogram("pro");
  EXPECT_EQ(h.count[QuantClass::Q4], 71424);
  EXPECT_EQ(h.count[QuantClass::Q8], 528);
  EXPECT_EQ(h.count[QuantClass::KB], 619);
  EXPECT_EQ(h.count[QuantClass::KF], 590);
  EXPECT_EQ(h.count[QuantClass::KI], 3);
  EXPECT_EQ(h.tensors, 73164);
  EXPECT_EQ(h.bf16_bytes, 3197868864632);
  EXPECT_EQ(h.release_bytes, 864704792696);
}

TEST(Contract, AnMtpBlockHasTheSpecifiedNumberOfHubTensors) {
  for (const char* name : {"flash", "pro"}) {
    const ModelConfig c = recipe(name);
    int64_t count = 0;
    for (const DiskTensor& t : hub_tensors(c)) {
      if (!t.name.starts_with("mtp.0.")) continue;
      ++count;
      if (t.quant == QuantClass::Q8 || t.quant == QuantClass::Q4) ++count;  // its scale
    }
    EXPECT_EQ(count, 3 * c.num_experts * 2 + 39);
  }
}

std::vector<int64_t> hub_shape_of(const std::vector<DiskTensor>& tensors, const std::string& name) {
  const auto it =
      std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.name == name; });
  return it == tensors.end() ? std::vector<int64_t>{} : it->shape;
}

TEST(Contract, HubShapesFollowTheSpecificationTable) {
  const std::vector<DiskTensor> t = hub_tensors(recipe("flash"));
  using Shape = std::vector<int64_t>;
  EXPECT_EQ(hub_shape_of(t, "layers.2.attn.wo_a.weight"), (Shape{8192, 4096}));
  EXPECT_EQ(hub_shape_of(t, "layers.2.attn.compressor.ape"), (Shape{4, 1024}));
  EXPECT_EQ(hub_shape_of(t, "layers.3.attn.compressor.ape"), (Shape{128, 512}));
  EXPECT_EQ(hub_shape_of(t, "layers.2.attn.indexer.compressor.ape"), (Shape{4, 256}));
  EXPECT_EQ(hub_shape_of(t, "layers.2.attn.indexer.wq_b.weight"), (Shape{8192, 1024}));
  EXPECT_EQ(hub_shape_of(t, "layers.2.ffn.gate.tid2eid"), (Shape{129280, 6}));
  EXPECT_EQ(hub_shape_of(t, "layers.2.hc_attn_scale"), Shape{3});
  EXPECT_EQ(hub_shape_of(t, "layers.2.hc_attn_fn"), (Shape{24, 16384}));
  EXPECT_EQ(hub_shape_of(t, "hc_head_fn"), (Shape{4, 16384}));
}

TEST(Contract, CompressorIndexerTableAndBiasExistExactlyWhereTheyBelong) {
  const ModelConfig c = tiny_a();
  std::set<std::string> names;
  for (const DiskTensor& t : hub_tensors(c)) names.insert(t.name);
  for (int64_t i = 0; i < c.num_layers; ++i) {
    const std::string layer = "layers." + std::to_string(i) + ".";
    EXPECT_EQ(names.count(layer + "attn.compressor.ape"), c.ratio(i) > 0 ? 1 : 0);
    EXPECT_EQ(names.count(layer + "attn.indexer.wq_b.weight"), c.ratio(i) == 4 ? 1 : 0);
    EXPECT_EQ(names.count(layer + "ffn.gate.tid2eid"), i < 2 ? 1 : 0);
    EXPECT_EQ(names.count(layer + "ffn.gate.bias"), i < 2 ? 0 : 1);
  }
  EXPECT_EQ(names.count("mtp.0.ffn.gate.bias"), 1);
  EXPECT_EQ(names.count("mtp.0.ffn.gate.tid2eid"), 0);
  EXPECT_EQ(names.count("mtp.0.attn.compressor.ape"), 0);
}

/// Marks every row that `pieces` write, per internal tensor and expert.
void mark(std::vector<std::vector<int>>& rows,
          const std::vector<ParamSpec>& params,
          const DiskTensor& tensor) {
  for (const Piece& p : tensor.pieces) {
    const ParamSpec& spec = params[p.param];
    const int64_t per_expert = spec.stacked && p.expert >= 0 ? spec.shape[1] : spec.shape[0];
    const int64_t base = p.expert >= 0 ? p.expert * per_expert : 0;
    const int64_t scale = spec.stacked && p.expert < 0 ? spec.shape[1] : 1;
    for (int64_t r = 0; r < p.rows * scale; ++r)
      ++rows[p.param][static_cast<size_t>(base + p.row * scale + r)];
  }
}

TEST(Contract, EveryDialectWritesEveryInternalRowExactlyOnceAndKeepsTheElementCount) {
  for (const ModelConfig& config : {tiny_a(), recipe("flash-4layer")}) {
    const std::vector<ParamSpec> params = contract(config);
    int64_t internal = 0;
    for (const ParamSpec& spec : params) internal += spec.numel();
    for (const Dialect d :
         {Dialect::Internal, Dialect::Hub, Dialect::Transformers, Dialect::Rollout}) {
      std::vector<std::vector<int>> rows;
      for (const ParamSpec& s : params) {
        rows.emplace_back(static_cast<size_t>(s.stacked ? s.shape[0] * s.shape[1] : s.shape[0]), 0);
      }
      std::set<std::string> names;
      int64_t elements = 0;
      for (const DiskTensor& t : disk_tensors(params, d)) {
        EXPECT_TRUE(names.insert(t.name).second) << t.name;
        elements += t.numel();
        mark(rows, params, t);
      }
      EXPECT_EQ(elements, internal);
      for (const auto& one : rows) {
        EXPECT_EQ(std::count(one.begin(), one.end(), 1), static_cast<std::ptrdiff_t>(one.size()));
      }
    }
  }
}

const ParamSpec& spec_of(const std::vector<ParamSpec>& params, const std::string& name) {
  const auto it =
      std::find_if(params.begin(), params.end(), [&](const auto& s) { return s.name == name; });
  if (it == params.end()) throw std::runtime_error("no spec " + name);
  return *it;
}

TEST(Contract, FusedStackedAndPackedTensorsAreDescribedAsRows) {
  const std::vector<ParamSpec> params = contract(tiny_a());
  const ParamSpec& fc1 = spec_of(params, "decoder.layers.1.mlp.experts.fc1");
  EXPECT_EQ(fc1.shape, (std::vector<int64_t>{8, 64, 64}));
  ASSERT_EQ(fc1.hub.size(), 16U);
  EXPECT_EQ(fc1.hub[7].hub, "layers.1.ffn.experts.3.w3.weight");
  EXPECT_EQ(fc1.hub[7].checkpoint, "decoder.layers.1.mlp.experts.linear_fc1.weight3");
  EXPECT_EQ(fc1.hub[7].expert, 3);
  EXPECT_EQ(fc1.hub[7].row, 32);
  EXPECT_EQ(fc1.hub[7].rows, 32);
  const ParamSpec& fc2 = spec_of(params, "mtp.layers.0.mtp_model_layer.mlp.experts.fc2");
  EXPECT_EQ(fc2.shape, (std::vector<int64_t>{8, 64, 32}));
  EXPECT_EQ(fc2.hub[5].hub, "mtp.0.ffn.experts.5.w2.weight");
  const std::array<const char*, 3> alphas = {"alpha_pre", "alpha_post", "alpha_res"};
  for (int64_t i = 0; i < 3; ++i) {
    const ParamSpec& alpha = spec_of(
        params,
        std::string("decoder.layers.2.mlp_hyper_connection.") + alphas[static_cast<size_t>(i)]);
    EXPECT_EQ(alpha.shape, std::vector<int64_t>{1});
    EXPECT_EQ(alpha.hub[0].hub, "layers.2.hc_ffn_scale");
    EXPECT_EQ(alpha.hub[0].shape, std::vector<int64_t>{3});
    EXPECT_EQ(alpha.hub[0].hub_row, i);
  }
}

TEST(Contract, OrderIsEmbeddingLayersTailMtp) {
  const std::vector<ParamSpec> params = contract(tiny_a());
  EXPECT_EQ(params.front().name, "embedding.word_embeddings.weight");
  EXPECT_EQ(params[1].name, "decoder.layers.0.input_layernorm.weight");
  const auto at = [&](const std::string& name) { return &spec_of(params, name) - params.data(); };
  EXPECT_LT(at("decoder.layers.3.mlp_hyper_connection.alpha_res"),
            at("decoder.final_layernorm.weight"));
  EXPECT_LT(at("output_layer.weight"), at("mtp.layers.0.e_proj.weight"));
  EXPECT_EQ(params.back().name, "mtp.layers.0.hc_head_scale");
}

TEST(Contract, TheFp32KeptListIsThatOfTheSpecification) {
  std::set<std::string> kept, disk, buffers;
  for (const ContractRow& row : contract_table()) {
    const std::string leaf(row.hub);
    if (row.fp32_memory) kept.insert(leaf);
    if (row.fp32_disk()) disk.insert(leaf);
    if (row.kind == ParamKind::Buffer) buffers.insert(leaf);
  }
  const std::set<std::string> protected_leaves = {"attn.attn_sink",
                                                  "attn.compressor.ape",
                                                  "attn.indexer.compressor.ape",
                                                  "ffn.gate.bias",
                                                  "hc_attn_fn",
                                                  "hc_attn_base",
                                                  "hc_attn_scale",
                                                  "hc_ffn_fn",
                                                  "hc_ffn_base",
                                                  "hc_ffn_scale",
                                                  "hc_head_fn",
                                                  "hc_head_base",
                                                  "hc_head_scale"};
  EXPECT_EQ(disk, protected_leaves);
  std::set<std::string> with_norms = protected_leaves;
  with_norms.insert({"attn_norm.weight",
                     "ffn_norm.weight",
                     "attn.q_norm.weight",
                     "attn.kv_norm.weight",
                     "attn.compressor.norm.weight",
                     "attn.indexer.compressor.norm.weight",
                     "norm.weight",
                     "enorm.weight",
                     "hnorm.weight"});
  EXPECT_EQ(kept, with_norms);
  EXPECT_EQ(buffers, (std::set<std::string>{"ffn.gate.bias", "ffn.gate.tid2eid"}));
}

TEST(Contract, WoAIsKeptInTheRolloutDialectOnly) {
  const std::vector<ParamSpec> params = contract(tiny_a());
  for (const Dialect d : {Dialect::Hub, Dialect::Rollout}) {
    int found = 0;
    for (const DiskTensor& t : disk_tensors(params, d)) {
      if (t.name.find("wo_a") == std::string::npos) continue;
      ++found;
      EXPECT_EQ(t.quant, d == Dialect::Rollout ? QuantClass::KB : QuantClass::Q8);
    }
    EXPECT_EQ(found, 5);
  }
}

TEST(Contract, TransformersNamesAreThoseOfTheGoldenMap) {
  std::ifstream in(std::string(LETHE_GOLDEN_DIR) + "/T/names.json");
  const auto golden = nlohmann::json::parse(in);
  ModelConfig config = tiny_a();
  config.ratios = {0, 4, 128, 4, 0};
  const std::vector<ParamSpec> params = contract(config);
  std::map<std::string, std::set<std::string>> ours;
  for (const DiskTensor& t : disk_tensors(params, Dialect::Transformers)) {
    if (t.name.starts_with("mtp.")) continue;
    for (const Piece& p : t.pieces) {
      for (const HubPart& part : params[p.param].hub) {
        const bool whole_stack = p.expert < 0 && params[p.param].stacked;
        if (whole_stack || (part.expert == p.expert && part.row == p.row))
          ours[t.name].insert(part.hub);
      }
    }
  }
  ASSERT_EQ(ours.size(), golden.size());
  for (const auto& [name, value] : golden.items()) {
    std::set<std::string> expected;
    if (value.is_string())
      expected.insert(value.get<std::string>());
    else
      for (const auto& part : value["parts"]) expected.insert(part.get<std::string>());
    EXPECT_EQ(ours[name], expected) << name;
  }
}

// Model spec 12: what Muon updates is a stack of equal matrices, in every published size.
TEST(Contract, MuonsMatricesDivideTheirTensors) {
  for (const ModelConfig& config : {recipe("flash"), recipe("pro"), tiny_a(), tiny_q()})
    for (const ParamSpec& spec : contract(config)) {
      const int64_t rows = spec.shape.size() >= 2 ? spec.shape[spec.shape.size() - 2] : 0;
      if (spec.kind == ParamKind::Buffer || spec.shape.size() < 2) {
        EXPECT_EQ(spec.matrix_rows, 0) << spec.name;
      }
      if (spec.matrix_rows > 0) {
        EXPECT_EQ(rows % spec.matrix_rows, 0) << spec.name;
      }
      if (spec.head_rows > 0) {
        EXPECT_EQ(spec.matrix_rows % spec.head_rows, 0) << spec.name;
      }
    }
}

TEST(Contract, FlashHasTheMuonMatricesOfTheSpecification) {
  const ModelConfig flash = recipe("flash");
  int64_t experts = 0, groups = 0, overlapping = 0, heads = 0;
  for (const ParamSpec& spec : contract(flash)) {
    if (spec.matrix_rows == 0) continue;
    const int64_t matrices = spec.numel() / (spec.matrix_rows * spec.shape.back());
    if (spec.stacked) experts += matrices;
    if (spec.name.ends_with("linear_o_group_proj")) groups += matrices;
    if (spec.name.find("compressor.linear_w") != std::string::npos)
      overlapping += matrices == 2 ? 1 : 0;
    if (spec.head_rows > 0) heads += spec.matrix_rows / spec.head_rows;
  }
  const auto blocks = flash.num_layers + flash.num_mtp;
  const auto csa = std::count(flash.ratios.begin(), flash.ratios.end(), kCsaRatio);
  EXPECT_EQ(experts, blocks * flash.num_experts * 3);  // w1, w2 and w3 of each
  EXPECT_EQ(groups, blocks * flash.o_groups);
  EXPECT_EQ(overlapping, csa * 4);  // wkv and wgate of attention and indexer
  EXPECT_EQ(heads, blocks * flash.heads + csa * flash.index_heads);
}

}  // namespace
}  // namespace lethe
