#include "lethe/plan/subgraph.h"

#include <algorithm>
#include <array>

namespace lethe {
namespace {

using enum Mechanism;
using Id = SubgraphId;

constexpr std::array<SubgraphInfo, kNumSubgraphs> kTable{{
    {Id::AttnPre,
     "attn_pre",
     "G9",
     Event::AttnPreEnd,
     Event::AttnPreEnd,
     WithoutOutput,
     "mHC pre of the attention"},
    {Id::AttnNorm,
     "attn_norm",
     "G8",
     Event::AttnNormEnd,
     Event::AttnNormEnd,
     WithoutOutput,
     "norm before the attention"},
    {Id::QUp, "q_up", "G1", Event::AttnQEnd, Event::AttnQEnd, WithoutOutput, "query up-projection"},
    {Id::QUpNorm,
     "q_up_norm",
     "G2",
     Event::AttnQEnd,
     Event::AttnQEnd,
     WithoutOutput,
     "query up-projection, head norm and rotation"},
    {Id::QNorm,
     "q_norm",
     "G2'",
     Event::AttnQEnd,
     Event::AttnQEnd,
     WithoutOutput,
     "head norm and rotation of the query"},
    {Id::Indexer,
     "indexer",
     "G3",
     Event::AttnIndexerEnd,
     Event::AttnIndexerEnd,
     Ordinary,
     "indexer: queries, keys, weights, scores, top-k"},
    {Id::CompressCast,
     "compress_cast",
     "G4",
     Event::AttnCompressEnd,
     Event::AttnCompressEnd,
     WithoutOutput,
     "the compressor's input in fp32"},
    {Id::Sparse,
     "sparse",
     "G5",
     Event::AttnSparseEnd,
     Event::AttnSparseEnd,
     WithoutOutput,
     "sparse attention"},
    {Id::Oup,
     "oup",
     "G6",
     Event::AttnOupEnd,
     Event::AttnOupEnd,
     WithoutOutput,
     "output down- and up-projection"},
    {Id::AttnBda,
     "attn_bda",
     "G7",
     Event::AttnBdaEnd,
     Event::AttnBdaEnd,
     WithoutOutput,
     "bias and dropout behind the attention"},
    {Id::AttnPost,
     "attn_post",
     "G10",
     Event::AttnPostEnd,
     Event::AttnPostEnd,
     WithoutOutput,
     "mHC post of the attention"},
    {Id::MlpPre,
     "mlp_pre",
     "G9",
     Event::MlpPreEnd,
     Event::MlpPreEnd,
     WithoutOutput,
     "mHC pre of the MLP"},
    {Id::MlpNorm,
     "mlp_norm",
     "",
     Event::MlpNormEnd,
     Event::MlpNormEnd,
     WithoutOutput,
     "norm before the router"},
    {Id::Moe,
     "moe",
     "",
     Event::MlpRouterEnd,
     Event::MlpCombineEnd,
     Ordinary,
     "router, experts, combine"},
    {Id::SharedExpert,
     "shared_expert",
     "",
     Event::MlpExpertsEnd,
     Event::MlpExpertsEnd,
     Ordinary,
     "shared expert"},
    {Id::MlpPost,
     "mlp_post",
     "G11",
     Event::MlpPostEnd,
     Event::MlpPostEnd,
     WithoutOutput,
     "mHC post of the MLP"},
    {Id::Layer, "layer", "", Event::AttnPreEnd, Event::MlpPostEnd, Ordinary, "the whole layer"},
    {Id::LayerInput, "layer_input", "", Event::Never, Event::Never, None, "streams into the layer"},
    {Id::QDown,
     "q_down",
     "",
     Event::AttnQEnd,
     Event::AttnQEnd,
     None,
     "query down-projection and norm"},
    {Id::Kv, "kv", "", Event::AttnQEnd, Event::AttnQEnd, None, "key-value of the window"},
    {Id::Compressor,
     "compressor",
     "",
     Event::AttnCompressEnd,
     Event::AttnCompressEnd,
     None,
     "compressor: slots"},
    {Id::Router, "router", "", Event::MlpRouterEnd, Event::MlpRouterEnd, None, "expert choice"},
    {Id::Dispatch,
     "dispatch",
     "",
     Event::MlpDispatchEnd,
     Event::MlpDispatchEnd,
     None,
     "tokens sent to experts"},
}};

constexpr bool in_order() {
  for (int i = 0; i < kNumSubgraphs; ++i)
    if (kTable[static_cast<size_t>(i)].id != static_cast<SubgraphId>(i)) return false;
  return true;
}

static_assert(in_order(), "rows stand in the order of SubgraphId");

}  // namespace

std::span<const SubgraphInfo> subgraphs() {
  return kTable;
}

const SubgraphInfo& subgraph_info(SubgraphId id) {
  return kTable[static_cast<size_t>(id)];
}

std::string_view subgraph_name(SubgraphId id) {
  return subgraph_info(id).name;
}

std::optional<SubgraphId> find_subgraph(std::string_view name) {
  const auto found =
      std::find_if(kTable.begin(), kTable.end(), [&](const auto& row) { return row.name == name; });
  if (found == kTable.end()) return std::nullopt;
  return found->id;
}

bool can_be_region(SubgraphId id) {
  return subgraph_info(id).mechanism != None;
}

int release_stage(SubgraphId id) {
  switch (id) {
    case Id::QUpNorm:
    case Id::Sparse:
      return 1;
    case Id::AttnPre:
    case Id::AttnNorm:
    case Id::Oup:
    case Id::AttnBda:
    case Id::AttnPost:
    case Id::MlpPre:
      return 2;
    default:
      return 0;
  }
}

}  // namespace lethe
