#include "lethe/plan/saved_bytes.h"

#include "support/tiny_configs.h"
#include <gtest/gtest.h>

#include "lethe/plan/save_targets.h"

// Predicted bytes of whole layers and of what save units keep in them. That they are those of the
// engine is a test of tests/recompute (ModelIdentity).
namespace lethe {
namespace {

using test::tiny_a;

const std::vector<LayerKind> kKinds{{.ratio = 0},
                                    {.ratio = kCsaRatio},
                                    {.ratio = 8},
                                    {.ratio = kCsaRatio, .hash = true},
                                    {.ratio = 0, .mtp = true}};

ActivationSizes sizes_for(const LayerKind& kind) {
  return sizes_of(
      tiny_a(),
      {.documents = Documents::from_lengths(std::vector<int64_t>{16, 9}), .balanced = true},
      kind);
}

std::vector<RegionBytes> rows_of(const LayerKind& kind, const LayerChoice& choice) {
  return region_bytes(
      tiny_a(), sizes_for(kind), OperatorFacts{}, make_layer_plan(kind, OperatorFacts{}, choice));
}

int64_t freed(const LayerKind& kind, const LayerChoice& choice) {
  int64_t sum = 0;
  for (const RegionBytes& row : rows_of(kind, choice)) sum += row.freed();
  return sum;
}

std::vector<UnitBytes> units_of(const LayerKind& kind, const LayerChoice& choice) {
  return unit_bytes(
      tiny_a(), sizes_for(kind), OperatorFacts{}, make_layer_plan(kind, OperatorFacts{}, choice));
}

std::vector<std::string> all_units() {
  std::vector<std::string> units;
  for (const SaveTarget& target : deepseek_v4_save_targets().targets)
    units.emplace_back(save_unit_name(target.unit));
  return units;
}

// Whatever its parts are made of, a whole layer frees the same: they only share it out.
TEST(SavedBytes, RegionsInsideOfAWholeLayerShareItsBytes) {
  const std::vector<LayerChoice> choices{
      {.full = true, .nested = true},
      {.full = true, .parts = {.csa = true}, .nested = true},
      {.full = true, .parts = {.q_norm = true}, .layer_norms = true, .nested = true},
      {.full = true, .core_attention = true, .q_up = true, .moe = true, .nested = true},
      {.full = true, .moe = true, .shared_expert = true, .nested = true},
      {.full = true,
       .parts = {.csa = true, .q_norm = true, .mhc = true},
       .layer_norms = true,
       .moe = true,
       .nested = true}};
  for (const LayerKind& kind : kKinds)
    for (const LayerChoice& choice : choices) {
      SCOPED_TRACE(kind_name(kind) + " " + choice.text());
      EXPECT_EQ(freed(kind, choice), freed(kind, {.full = true}));
      for (const RegionBytes& row : rows_of(kind, choice)) {
        EXPECT_GE(row.freed(), 0);
        EXPECT_EQ(row.nested, row.subgraph != SubgraphId::Layer);
      }
    }
}

// The finer regions leave what no part covers: raw products before norms, keys and gates.
TEST(SavedBytes, AWholeLayerFreesMoreThanItsParts) {
  const LayerChoice parts{
      .parts = {.csa = true, .q_norm = true, .mhc = true}, .layer_norms = true, .moe = true};
  for (const LayerKind& kind : kKinds)
    EXPECT_GT(freed(kind, {.full = true}), freed(kind, parts)) << kind_name(kind);
}

TEST(SavedBytes, InsideOfAChunkALayersOutputGoesToo) {
  const LayerKind kind{.ratio = kCsaRatio};
  const int64_t output = act_bytes(tiny_a(), sizes_for(kind), {SubgraphId::MlpPost, 0});
  const LayerChoice whole{.full = true}, open{.full = true, .chunk_ends = false};
  EXPECT_EQ(rows_of(kind, whole).back().retained, output);
  EXPECT_EQ(rows_of(kind, open).back().retained, 0);
  EXPECT_EQ(freed(kind, open), freed(kind, whole) + output);
  // mHC post makes it: kept, it stays.
  LayerChoice kept = open;
  kept.save_units = {"mhc"};
  EXPECT_EQ(rows_of(kind, kept).back().released, 0);
  EXPECT_EQ(rows_of(kind, kept).back().retained, output);
}

// R6.35.
TEST(SavedBytes, ALayerFreesLessByWhatItsUnitsKeep) {
  for (const LayerKind& kind : kKinds) {
    SCOPED_TRACE(kind_name(kind));
    for (const std::string& name : all_units()) {
      const LayerChoice choice{.full = true, .save_units = {name}};
      int64_t inside = 0, bytes = 0;
      for (const UnitBytes& unit : units_of(kind, choice)) {
        EXPECT_EQ(unit.unit, name);
        bytes += unit.bytes();
        for (const KeptBytes& call : unit.calls) {
          inside += call.inside;
          EXPECT_LE(call.inside + call.output + call.added, call.bytes) << call.call;
        }
      }
      EXPECT_EQ(freed(kind, choice), freed(kind, {.full = true}) - inside) << name;
      EXPECT_EQ(bytes > 0, name != "compressor" || kind.ratio > 0) << name;
    }
    EXPECT_GT(freed(kind, {.full = true, .save_units = all_units()}), 0);
  }
}

// Ids that scores chose are recorded whatever is kept; those of a hash layer are looked up again.
TEST(SavedBytes, TheGateKeepsAChoiceThatStaysAnyway) {
  const auto gate = [](const LayerKind& kind) {
    return units_of(kind, {.full = true, .save_units = {"moe_gate"}}).at(0).calls.at(0);
  };
  const int64_t ids = 25 * tiny_a().experts_per_token * 4;
  EXPECT_EQ(gate({}).bytes - gate({}).inside, ids);
  EXPECT_EQ(gate({.hash = true}).bytes, gate({.hash = true}).inside);
  EXPECT_EQ(gate({}).added, 0);
}

// The indexer's loss saves keys behind the Hadamard transform: those before it are kept besides.
// Without the loss the indexer is a recorded choice, of which nothing is kept.
TEST(SavedBytes, KeysOfTheIndexerAreAddedWhereNobodySavesThem) {
  const LayerKind kind{.ratio = kCsaRatio};
  const auto compressor = [&kind](bool hadamard, const OperatorFacts& facts) {
    ModelConfig model = tiny_a();
    model.indexer_hadamard = hadamard;
    const LayerPlan layer =
        make_layer_plan(kind, facts, {.full = true, .save_units = {"compressor"}});
    return unit_bytes(model, sizes_for(kind), facts, layer).at(0).calls.at(0);
  };
  const int64_t slots = 16 / 4 + 9 / 4;
  const int64_t keys = slots * tiny_a().index_head_dim * 4, own = slots * tiny_a().head_dim * 4;
  const OperatorFacts no_loss{.indexer_loss = false};
  for (const bool hadamard : {true, false})
    EXPECT_EQ(compressor(hadamard, {}).bytes, keys + own) << hadamard;
  EXPECT_EQ(compressor(true, {}).added, keys);
  EXPECT_EQ(compressor(false, {}).added, 0);
  for (const bool hadamard : {true, false}) {
    EXPECT_EQ(compressor(hadamard, no_loss).bytes, own) << hadamard;
    EXPECT_EQ(compressor(hadamard, no_loss).added, 0) << hadamard;
  }
}

}  // namespace
}  // namespace lethe
