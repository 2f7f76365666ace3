#include "lethe/train/recompute_trace.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "lethe/io/atomic_file.h"
#include "lethe/plan/saved_bytes.h"
#include "lethe/report/recompute_trace.h"

namespace lethe {
namespace {

bool is_excluded(ByteCategory category) {
  return category == ByteCategory::Parameters || category == ByteCategory::Gradients ||
         category == ByteCategory::Optimizer;
}

// Rows by what their blocks have in common.
class CensusRows {
 public:
  void add(const LiveBlock& block) {
    const Key key{block.layer, block.node, block.shape, block.dtype, name_of(block.category)};
    report::CensusRow& row = rows_[key];
    std::tie(row.layer, row.producer, row.shape, row.dtype, row.category) = key;
    ++row.count;
    row.bytes += block.bytes;
  }

  std::vector<report::CensusRow> take() {
    std::vector<report::CensusRow> rows;
    for (auto& [key, row] : rows_) rows.push_back(std::move(row));
    std::stable_sort(
        rows.begin(), rows.end(), [](const report::CensusRow& a, const report::CensusRow& b) {
          return a.bytes > b.bytes;
        });
    return rows;
  }

 private:
  using Key = std::tuple<std::string, std::string, std::string, std::string, std::string>;
  std::map<Key, report::CensusRow> rows_;
};

void append_lines(LineFile& file, const std::string& lines) {
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = lines.find('\n', begin);
    file.append(std::string_view(lines).substr(begin, end - begin));
    begin = end + 1;
  }
}

std::map<std::string, std::vector<std::string>> holders_of(const PlanSubject& subject,
                                                           const RecomputePlan& plan) {
  std::map<std::string, std::vector<std::string>> holders;
  if (plan.is_empty()) return holders;
  const std::vector<StageLayer> layers = stage_layers(subject);
  for (size_t i = 0; i < layers.size(); ++i)
    for (const RegionRule& region : plan.layer(i).regions) {
      const std::string name = fmt::format(
          "{}.{}", layer_label(subject, layers[i].index), subgraph_name(region.subgraph));
      holders[name] = output_holders(subject.operators, plan.layer(i), region.subgraph);
    }
  return holders;
}

}  // namespace

report::Census take_census(const BlockWatch& watch) {
  const LiveBlocks now = watch.live();
  CensusRows rows;
  for (const LiveBlock& block : now.blocks)
    if (!is_excluded(block.category)) rows.add(block);
  report::Census census{.rows = rows.take(),
                        .parameters = now.of(ByteCategory::Parameters),
                        .gradients = now.of(ByteCategory::Gradients),
                        .optimizer = now.of(ByteCategory::Optimizer)};
  for (size_t c = 0; c < kNumByteCategories; ++c) {
    const auto category = static_cast<ByteCategory>(c);
    census.live += now.category[c];
    if (!is_excluded(category) && now.older[c] > 0)
      census.rows.push_back(
          {.producer = "before the watch", .category = name_of(category), .bytes = now.older[c]});
  }
  return census;
}

RecomputeTrace::RecomputeTrace(const std::filesystem::path& folder,
                               const PlanSubject& subject,
                               const RecomputePlan& plan,
                               RecomputeTraceOptions options)
    : folder_(folder),
      options_(options),
      holders_(holders_of(subject, plan)),
      regions_(folder / "recompute.jsonl") {
  if (options.num_steps > 0) census_.emplace(folder / "census.jsonl");
}

bool RecomputeTrace::is_traced(int64_t step) const {
  return step >= options_.first_step && step < options_.first_step + options_.num_steps;
}

void RecomputeTrace::begin_step(int64_t step) {
  // What a step that failed has left.
  watch_.reset();
  trace_.reset();
  step_ = step;
  if (!is_traced(step)) return;
  watch_.emplace();
  trace_.emplace();
  trace_mark(fmt::format("step {}", step));
}

void RecomputeTrace::end_forward() {
  trace_mark("end of forward");
  if (!watch_) return;
  append_lines(*census_, report::census_lines(step_, take_census(*watch_)));
  watch_.reset();
}

void RecomputeTrace::end_step(std::span<const RegionReport> regions) {
  std::vector<report::RegionRow> rows;
  for (const RegionReport& region : regions) rows.push_back(row_of(region));
  append_lines(regions_, report::region_lines(step_, rows));
  if (!trace_) return;
  trace_mark(fmt::format("end of step {}", step_));
  const std::vector<TraceEvent> now = trace_->take();
  trace_.reset();
  events_.insert(events_.end(), now.begin(), now.end());
  write_file_atomically(folder_ / "recompute-trace.json",
                        report::recompute_trace_json(events_, options_.rank));
  if (!is_traced(step_ + 1)) std::vector<TraceEvent>().swap(events_);
}

report::RegionRow RecomputeTrace::row_of(const RegionReport& region) const {
  report::RegionRow row{.region = region.name,
                        .slots = region.slots,
                        .handles = region.handles,
                        .forgettable = region.forgettable,
                        .released = region.released,
                        .retained = region.retained,
                        .snapshot_bytes = region.snapshot_bytes,
                        .retained_outputs = region.retained_outputs,
                        .replays = region.replays,
                        .early_stops = region.early_stops,
                        .late_restores = region.late_restores,
                        .replay_ns = region.replay_ns};
  for (const KeptReport& kept : region.kept)
    row.kept.push_back({kept.name, kept.calls, kept.bytes, kept.forward_ns});
  // "L3.mb0.sparse": a plan does not know micro-batches.
  const size_t first = region.name.find('.'), last = region.name.rfind('.');
  if (first == std::string::npos) return row;
  const auto holders = holders_.find(region.name.substr(0, first) + region.name.substr(last));
  if (holders != holders_.end()) row.consumers = holders->second;
  return row;
}

}  // namespace lethe
