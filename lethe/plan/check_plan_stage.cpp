#include <algorithm>
#include <set>

#include <fmt/ranges.h>

#include "lethe/plan/check_plan_impl.h"

namespace lethe::detail {
namespace {

using Id = SubgraphId;

constexpr ActId kInput{Id::LayerInput, 0}, kOutput{Id::MlpPost, 0};

/// A region of one layer of the stage.
struct Place {
  size_t layer;
  Id region;
  auto operator<=>(const Place&) const = default;
};

class StageCheck {
 public:
  StageCheck(const PlanSubject& subject,
             const std::vector<StageLayer>& layers,
             const RecomputePlan& plan,
             std::vector<std::string>& out)
      : subject_(subject), layers_(layers), plan_(plan), out_(out) {}

  void run() {
    if (plan_.mhc_block < 1 || plan_.full_chunk < 1)
      PlanFindings(out_, "layers")
          .add("SC14",
               "an mHC block and a chunk must have at least one layer, got {} and {}; give 1 or "
               "more",
               plan_.mhc_block,
               plan_.full_chunk);
    size_t block = 0, chunk = 0;
    for (size_t i = 0; i < layers_.size(); ++i) {
      check_mtp(i);
      block = hands_on(i, Keep::Release) ? block + 1 : 0;
      chunk = hands_on(i, Keep::Full) ? chunk + 1 : 0;
      if (block > 0) check_block(i, block + 1);
      check_chunk(i, chunk + 1);
      check_swap(i);
      check_pull(i);
    }
  }

 private:
  [[nodiscard]] PlanFindings at(size_t i) const {
    return {out_, label(i) + " " + plan_.layer(i).layer_class};
  }

  [[nodiscard]] std::string label(size_t i) const {
    return layer_label(subject_, layers_[i].index);
  }

  [[nodiscard]] bool hands_on(size_t i, Keep keep) const {
    return plan_.layer(i).find(kOutput)->keep == keep;
  }

  /// The next layer of the stage reads the output of this one directly.
  [[nodiscard]] bool has_next(size_t i) const {
    return i + 1 < layers_.size() && layers_[i + 1].chunk == layers_[i].chunk &&
           !layers_[i + 1].kind.mtp && !layers_[i].kind.mtp;
  }

  void check_mtp(size_t i) {
    if (plan_.mtp == MtpSelection::Include || !layers_[i].kind.mtp) return;
    if (plan_.layer(i).regions.empty()) return;
    at(i).add("SC10",
              "an MTP block must have no region with mtp = skip, got {}; leave them out or include "
              "MTP",
              plan_.layer(i).regions.size());
  }

  void check_block(size_t i, size_t length) {
    PlanFindings found = at(i);
    if (!has_next(i) || plan_.layer(i + 1).find(Id::MlpPre) == nullptr)
      found.add(
          "SC14",
          "'out' is released, but the next layer is not in the same mHC block; the last layer "
          "of a block keeps its output, and no block crosses a stage");
    if (length > plan_.mhc_block)
      found.add("SC14",
                "an mHC block must have at most mhc_block = {} layers, got {}; keep 'out' of one",
                plan_.mhc_block,
                length);
    for (const ActId id : {ActId{Id::Oup, 0}, ActId{Id::Moe, 0}})
      if (const ActRule& rule = *plan_.layer(i).find(id); rule.keep != Keep::Keep)
        found.add(
            "SC14",
            "'{}' of an inner layer of an mHC block must be kept, got it released; one pull at "
            "the end of the block would replay the attention of every layer",
            rule.name);
  }

  void check_chunk(size_t i, size_t length) {
    const bool opens = hands_on(i, Keep::Full);
    const bool wanted = has_next(i) && plan_.layer(i + 1).find(kInput)->keep == Keep::Full;
    if (opens != wanted)
      at(i).add("SC17",
                "a chunk of whole layers must go on in the next layer of the stage or end, got "
                "'out' {} and the next 'x_in' {}; correct one of them",
                opens ? "inside a chunk" : "kept",
                wanted ? "inside a chunk" : "kept");
    const bool from_nowhere =
        plan_.layer(i).find(kInput)->keep == Keep::Full && (i == 0 || !has_next(i - 1));
    if (from_nowhere)
      at(i).add("SC17",
                "'x_in' must be kept in the first layer of a stage, got it inside a chunk; "
                "keep it");
    if (length > plan_.full_chunk)
      at(i).add("SC17",
                "a chunk must have at most full_chunk = {} whole layers, got {}; keep 'out' of one",
                plan_.full_chunk,
                length);
  }

  /// An activation is given back or swapped, not both.
  void check_swap(size_t i) {
    if (!plan_.layer(i).swaps_input()) return;
    const char* where = nullptr;
    if (plan_.input_source(i) != i) where = "the layer before gives it back";
    if (layers_[i].kind.mtp) where = "the layer is an MTP block";
    if (layers_[i].index == subject_.model.num_layers - 1) where = "backward comes first";
    if (where != nullptr)
      at(i).add("SC6", "'x_in' must be kept where {}, got it swapped; keep it", where);
  }

  /// What one pull of anything in layer i replays in other layers.
  void check_pull(size_t i) {
    std::vector<Place> chain;
    for (const RegionRule& region : plan_.layer(i).regions) {
      std::set<Place> seen;
      follow({i, region.subgraph}, i, seen, chain);
      if (!chain.empty()) break;
    }
    if (chain.empty()) return;
    std::vector<std::string> words;
    for (const Place& place : chain)
      words.push_back(fmt::format("{}.{}", label(place.layer), subgraph_name(place.region)));
    at(i).add(
        "SC17",
        "a pull must stay in its layer, or in an mHC block replay mHC alone, got the chain {}; "
        "keep an activation of it",
        fmt::join(words, " <- "));
  }

  /// Depth first through released inputs; chain becomes the way to the first region that may not
  /// be reached.
  bool follow(const Place& place, size_t home, std::set<Place>& seen, std::vector<Place>& chain) {
    if (!seen.insert(place).second) return false;
    chain.push_back(place);
    const bool is_mhc = place.region == Id::AttnPre || place.region == Id::AttnPost ||
                        place.region == Id::MlpPre || place.region == Id::MlpPost;
    if (place.layer != home && !is_mhc) return true;
    const LayerPlan& layer = plan_.layer(place.layer);
    for (const ActId id : layer.find(place.region)->inputs) {
      if (id == kInput && place.layer > 0 && has_next(place.layer - 1) &&
          hands_on(place.layer - 1, Keep::Release)) {
        if (follow({place.layer - 1, Id::MlpPost}, home, seen, chain)) return true;
      }
      if (layer.find(id)->keep != Keep::Release) continue;
      for (const RegionRule& maker : layer.regions)
        if (std::find(maker.outputs.begin(), maker.outputs.end(), id) != maker.outputs.end() &&
            follow({place.layer, maker.subgraph}, home, seen, chain))
          return true;
    }
    chain.pop_back();
    return false;
  }

  const PlanSubject& subject_;
  const std::vector<StageLayer>& layers_;
  const RecomputePlan& plan_;
  std::vector<std::string>& out_;
};

}  // namespace

void check_stage(const PlanSubject& subject,
                 const std::vector<StageLayer>& layers,
                 const RecomputePlan& plan,
                 std::vector<std::string>& out) {
  StageCheck(subject, layers, plan, out).run();
}

}  // namespace lethe::detail
