#include "lethe/report/recompute_rows.h"

#include <nlohmann/json.hpp>

namespace lethe::report {
namespace {

using Json = nlohmann::ordered_json;

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

Json kept_json(const std::vector<KeptRow>& rows) {
  Json kept = Json::array();
  for (const KeptRow& row : rows)
    kept.push_back({{"call", row.call},
                    {"calls", row.calls},
                    {"bytes", row.bytes},
                    {"forward_ns", row.forward_ns}});
  return kept;
}

}  // namespace

std::string region_lines(int64_t step, std::span<const RegionRow> regions) {
  std::string lines;
  for (const RegionRow& row : regions) {
    const Json line = {{"step", step},
                       {"region", row.region},
                       {"slots", row.slots},
                       {"handles", row.handles},
                       {"forgettable", row.forgettable},
                       {"released", row.released},
                       {"retained", row.retained},
                       {"snapshot_bytes", row.snapshot_bytes},
                       {"retained_outputs", row.retained_outputs},
                       {"consumers", row.consumers},
                       {"replays", row.replays},
                       {"early_stops", row.early_stops},
                       {"late_restores", row.late_restores},
                       {"replay_ns", row.replay_ns},
                       {"kept", kept_json(row.kept)}};
    lines += line.dump() + "\n";
  }
  return lines;
}

int64_t Census::total() const {
  int64_t total = 0;
  for (const CensusRow& row : rows) total += row.bytes;
  return total;
}

std::string census_lines(int64_t step, const Census& census) {
  std::string lines;
  for (const CensusRow& row : census.rows) {
    const Json line = {{"step", step},
                       {"layer", text_or_null(row.layer)},
                       {"producer", text_or_null(row.producer)},
                       {"shape", text_or_null(row.shape)},
                       {"dtype", text_or_null(row.dtype)},
                       {"category", row.category},
                       {"count", row.count},
                       {"bytes", row.bytes}};
    lines += line.dump() + "\n";
  }
  const Json whole = {{"step", step},
                      {"total", census.total()},
                      {"live", census.live},
                      {"parameters", census.parameters},
                      {"gradients", census.gradients},
                      {"optimizer", census.optimizer}};
  return lines + whole.dump() + "\n";
}

}  // namespace lethe::report
