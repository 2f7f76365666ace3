#include <algorithm>

#include <fmt/ranges.h>

#include "lethe/base/error.h"
#include "lethe/config/error_list.h"
#include "lethe/plan/pipeline_layout.h"

namespace lethe {
namespace {

class LayoutCheck {
 public:
  LayoutCheck(const PipelineLayout& layout, const LayoutNeeds& needs)
      : layout_(layout), needs_(needs) {
    for (const auto& stage : layout.stages) flat_.insert(flat_.end(), stage.begin(), stage.end());
  }

  void run() {
    const auto num_stages = static_cast<int64_t>(layout_.stages.size());
    const int64_t ranks = needs_.pipeline_ranks;
    need("V15",
         needs_.num_layers > 0 && ranks > 0,
         "must be for at least one layer and one pipeline rank, got {} and {}; give both",
         needs_.num_layers,
         ranks);
    if (ranks <= 0) return errors_.raise();
    need("V1",
         num_stages % ranks == 0,
         "must have a multiple of {} stages, one or more for each pipeline rank, got {}; add or "
         "join stages",
         ranks,
         num_stages);
    if (needs_.virtual_stages)
      need("V2",
           num_stages == ranks * *needs_.virtual_stages,
           "must have {} stages, {} for each of {} ranks, got {}; change one of them",
           ranks * *needs_.virtual_stages,
           *needs_.virtual_stages,
           ranks,
           num_stages);
    check_ends();
    check_counts();
    check_mtp(num_stages / ranks);
    check_overlap();
    errors_.raise();
  }

 private:
  template <class... Args>
  void need(const char* rule, bool holds, fmt::format_string<Args...> rest, Args&&... args) {
    if (holds) return;
    errors_.add(fmt::format("pipeline layout '{}' [{}]: {}",
                            layout_.text,
                            rule,
                            fmt::format(rest, std::forward<Args>(args)...)));
  }

  void check_ends() {
    const int64_t embeddings = layout_.count(StageItem::Embedding),
                  losses = layout_.count(StageItem::Loss);
    need(
        "V3",
        embeddings == 1 && losses == 1 && !flat_.empty() && flat_.front() == StageItem::Embedding &&
            flat_.back() == StageItem::Loss,
        "must begin with the only E and end with the only L, got {} of E and {} of L{}; place each "
        "once",
        embeddings,
        losses,
        embeddings == 1 && losses == 1 ? " elsewhere" : "");
  }

  void check_counts() {
    const int64_t decoders = layout_.count(StageItem::Decoder),
                  blocks = layout_.count(StageItem::Mtp);
    need("V4",
         decoders == needs_.num_layers,
         "must place num_layers = {} of t, got {}; change one of them",
         needs_.num_layers,
         decoders);
    need("V5",
         blocks == needs_.num_mtp,
         "must place mtp_num_layers = {} of m, got {}; change one of them",
         needs_.num_mtp,
         blocks);
    const auto first = std::find(flat_.begin(), flat_.end(), StageItem::Mtp);
    need("V6",
         std::find(first, flat_.end(), StageItem::Decoder) == flat_.end(),
         "must have no t behind an m, got one; MTP blocks follow the last layer");
  }

  void check_mtp(int64_t chunks) {
    int64_t stages_with = 0;
    for (size_t q = 0; q < layout_.stages.size(); ++q) {
      const auto& stage = layout_.stages[q];
      if (std::find(stage.begin(), stage.end(), StageItem::Mtp) == stage.end()) continue;
      ++stages_with;
      const int64_t chunk = static_cast<int64_t>(q) / needs_.pipeline_ranks;
      need("V7",
           chunk == chunks - 1,
           "must have m in the last chunk of a rank, got it in chunk {} of {}; move it",
           chunk,
           chunks);
    }
    need("V8",
         stages_with <= 1,
         "must have every m in one stage, got {} stages; join them",
         stages_with);
  }

  void check_overlap() {
    if (!needs_.overlap) return;
    std::vector<size_t> empty;
    for (size_t q = 0; q < layout_.stages.size(); ++q) {
      const auto& stage = layout_.stages[q];
      if (std::find(stage.begin(), stage.end(), StageItem::Decoder) == stage.end())
        empty.push_back(q);
    }
    need("V12",
         empty.empty(),
         "must have a t in every stage with forward-backward overlap, got none in stages {}; move "
         "layers there",
         fmt::join(empty, ", "));
  }

  const PipelineLayout& layout_;
  const LayoutNeeds& needs_;
  std::vector<StageItem> flat_;
  ErrorList errors_;
};

}  // namespace

void check_layout(const PipelineLayout& layout, const LayoutNeeds& needs) {
  LayoutCheck(layout, needs).run();
}

}  // namespace lethe
