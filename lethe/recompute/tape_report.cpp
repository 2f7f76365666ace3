#include <unordered_set>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include "lethe/base/error.h"
#include "lethe/recompute/region_impl.h"
#include "lethe/recompute/tape_state_impl.h"

// What a tape tells, and restores that are tied to a gradient.
namespace lethe {
namespace {

namespace autograd = torch::autograd;

using SeenStorages = std::unordered_set<const c10::StorageImpl*>;

void count(const SavedStorage& saved, bool released, SeenStorages& seen, RegionReport& report) {
  if (saved.bytes == 0 || !seen.insert(saved.storage._unsafe_get_target()).second) return;
  report.forgettable += saved.bytes;
  (released || saved.storage.expired() ? report.released : report.retained) += saved.bytes;
}

RegionReport report_of(const RegionRecord& record, SeenStorages& seen) {
  RegionReport report = record.report;
  for (size_t k = 0; k < record.outputs.size(); ++k) {
    const SavedStorage& output = record.outputs[k];
    if (record.handles[k] == 0 && !record.released[k]) continue;
    if (output.bytes > 0 && !record.released[k] && !output.storage.expired())
      report.retained_outputs.push_back(fmt::format("out{}: somebody else holds it", k));
    count(output, record.released[k], seen, report);
  }
  for (size_t i = 0; i < record.kept.size(); ++i)
    if (seen.insert(record.kept[i].storage._unsafe_get_target()).second)
      report.kept[record.kept_row[i]].bytes += record.kept[i].bytes;
  for (const SavedStorage& inside : record.inside) count(inside, false, seen, report);
  return report;
}

// Edges lead from younger to older nodes: what is older than the target cannot reach it. The
// numbers that tell the age belong to the thread that made the node.
bool depends_on(const at::Tensor& t, const std::shared_ptr<autograd::Node>& target) {
  std::unordered_set<const autograd::Node*> seen;
  std::vector<std::shared_ptr<autograd::Node>> open{t.grad_fn()};
  while (!open.empty()) {
    const auto node = std::move(open.back());
    open.pop_back();
    if (node == target) return true;
    if (!node || !seen.insert(node.get()).second) continue;
    const bool older =
        node->thread_id() == target->thread_id() && node->sequence_nr() < target->sequence_nr();
    if (older) continue;
    for (const autograd::Edge& edge : node->next_edges()) open.push_back(edge.function);
  }
  return false;
}

}  // namespace

std::vector<RegionReport> Tape::report() const {
  std::vector<std::weak_ptr<Region>> regions;
  std::vector<std::shared_ptr<RegionRecord>> records;
  {
    const std::lock_guard lock(state_->mutex);
    regions = state_->regions;
    records = state_->records;
  }
  SeenStorages seen;
  std::vector<RegionReport> reports;
  for (size_t i = 0; i < records.size(); ++i) {
    const auto region = regions[i].lock();
    reports.push_back(region ? report_of(region->record_now(), seen)
                             : report_of(*records[i], seen));
  }
  return reports;
}

void Tape::restore_at(const at::Tensor& hook, const std::vector<std::string>& names) {
  std::vector<std::weak_ptr<Region>> regions;
  for (const std::string& name : names) {
    const auto region = state_->needed(name);
    if (!region) continue;
    const auto rejects = [&](const char* what) {
      fail<RecomputeError>(
          "recompute {} [E2]: the hook tensor must depend on every region that it restores, got "
          "one "
          "that {}; take a later tensor of the same graph",
          name,
          what);
    };
    if (!hook.defined() || !hook.requires_grad()) rejects("requires no gradient");
    for (const Region::Output& output : region->outputs()) {
      if (output.storage._unsafe_get_target() == storage_of(hook))
        rejects("is an output of the region");
      if (const auto node = output.node.lock(); node && !depends_on(hook, node))
        rejects("is not downstream of its outputs");
    }
    regions.push_back(region);
  }
  for (const auto& weak : regions) weak.lock()->expect_prefetch();
  hook.register_hook([regions](const at::Tensor&) {
    for (const auto& weak : regions)
      if (const auto region = weak.lock()) region->prefetch();
  });
}

}  // namespace lethe
