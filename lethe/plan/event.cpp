#include "lethe/plan/event.h"

#include <algorithm>
#include <array>

namespace lethe {
namespace {

constexpr std::array<std::string_view, kNumEvents> kNames = {"never",
                                                             "attn.pre.end",
                                                             "attn.norm.end",
                                                             "attn.q.end",
                                                             "attn.indexer.end",
                                                             "attn.compress.end",
                                                             "attn.sparse.end",
                                                             "attn.oup.end",
                                                             "attn.bda.end",
                                                             "attn.post.end",
                                                             "mlp.pre.end",
                                                             "mlp.norm.end",
                                                             "mlp.router.end",
                                                             "mlp.dispatch.end",
                                                             "mlp.experts.end",
                                                             "mlp.combine.end",
                                                             "mlp.post.end",
                                                             "embed.end",
                                                             "hc_head.end",
                                                             "final_norm.end",
                                                             "head_loss.end",
                                                             "mtp.entry.end",
                                                             "mtp.hc_head.end",
                                                             "mtp.norm.end",
                                                             "mtp.head_loss.end",
                                                             "optim.step.end"};

}  // namespace

std::string_view event_name(Event event) {
  return kNames[static_cast<size_t>(event)];
}

std::string_view node_name(Event event) {
  const std::string_view name = event_name(event);
  return event == Event::Never ? name : name.substr(0, name.size() - 4);
}

std::optional<Event> find_event(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<Event>(found - kNames.begin());
}

}  // namespace lethe
