#include "lethe/offload/layer_input_swap.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/variable.h>

#include "lethe/base/error.h"
#include "lethe/offload/swappable.h"

namespace lethe {

struct LayerInputSwap::State {
  State(std::string record_name, const SwapPolicy& swap_policy, std::shared_ptr<SwapBackend> b)
      : name(std::move(record_name)), policy(swap_policy), backend(std::move(b)) {}

  SwapVerdict offer(int64_t layer, const at::Tensor& input, int64_t holders);
  void step_backward(int64_t layer);
  void restore(int64_t layer);
  void release_all();
  void drop();

  [[nodiscard]] SwapVerdict judge(int64_t layer, const at::Tensor& input) const;
  bool is_shared(const at::Tensor& input, int64_t holders);
  void swap_out(int64_t layer, const at::Tensor& input);
  [[nodiscard]] std::string situation() const;

  const std::string name;
  const SwapPolicy policy;
  const std::shared_ptr<SwapBackend> backend;
  mutable std::mutex mutex;
  std::map<int64_t, SwapEntry> entries;  // by layer
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> shared;
  SwapStats stats;
};

SwapVerdict LayerInputSwap::State::judge(int64_t layer, const at::Tensor& input) const {
  LETHE_CHECK(SwapError,
              layer >= 0,
              "swap {} [layer]: a layer must have a number >= 0, got {}; count from 0",
              name,
              layer);
  const auto known = entries.find(layer);
  if (known != entries.end() && known->second.owns(input)) return SwapVerdict::Owned;
  const SwapVerdict verdict = judge_tensor(input, policy.min_bytes);
  if (verdict == SwapVerdict::Absent || verdict == SwapVerdict::NoGrad) return verdict;
  if (layer >= policy.num_layers) return SwapVerdict::Mtp;
  if (layer == policy.num_layers - 1) return SwapVerdict::LastLayer;
  LETHE_CHECK(
      SwapError,
      known == entries.end(),
      "swap {} [once]: a layer must have one input in a record, got a second tensor; make a "
      "record for every forward pass, and do not offer in a replay",
      known->second.name());
  return verdict;
}

// A storage that an earlier layer's entry was about to free is read here: it stays for both.
bool LayerInputSwap::State::is_shared(const at::Tensor& input, int64_t holders) {
  const c10::StorageImpl* const storage = input.storage().unsafeGetStorageImpl();
  bool found =
      holders != kAnyHolders && static_cast<int64_t>(input.storage().use_count()) > holders;
  for (const auto& other : shared)
    found = found || (!other.expired() && other._unsafe_get_target() == storage);
  for (auto& [layer, entry] : entries) {
    if (!entry.owns(input)) continue;
    found = true;
    if (entry.state() != SwapState::D2hIssued) continue;
    stats.wait_out_ns += entry.cancel();
    ++stats.cancelled;
  }
  return found;
}

std::string LayerInputSwap::State::situation() const {
  std::map<SwapState, int> counts;
  for (const auto& [layer, entry] : entries) ++counts[entry.state()];
  std::vector<std::string> texts;
  for (const auto& [state, count] : counts)
    texts.push_back(fmt::format("{} {}", count, state_text(state)));
  return fmt::format(" (entries of {}: {})",
                     name,
                     texts.empty() ? "none" : fmt::format("{}", fmt::join(texts, ", ")));
}

void LayerInputSwap::State::swap_out(int64_t layer, const at::Tensor& input) {
  SwapEntry entry(fmt::format("L{}.{}", layer, name), input, backend, policy.checked);
  entry.issue_out(situation());
  ++stats.entries_out;
  stats.bytes_out += entry.bytes();
  entries.emplace(layer, std::move(entry));
}

SwapVerdict LayerInputSwap::State::offer(int64_t layer, const at::Tensor& input, int64_t holders) {
  const std::lock_guard lock(mutex);
  SwapVerdict verdict = judge(layer, input);
  // A replay and a pass without gradients change nothing.
  const bool looks_only = verdict == SwapVerdict::Owned || verdict == SwapVerdict::NoGrad;
  if (!looks_only && verdict != SwapVerdict::Absent && is_shared(input, holders) &&
      verdict == SwapVerdict::Swapped)
    verdict = SwapVerdict::Shared;
  ++stats.verdicts[static_cast<size_t>(verdict)];
  if (looks_only) return verdict;
  release_all();
  if (verdict == SwapVerdict::Swapped) swap_out(layer, input);
  return verdict;
}

void LayerInputSwap::State::release_all() {
  for (auto& [layer, entry] : entries) {
    if (entry.state() != SwapState::D2hIssued) continue;
    try {
      stats.wait_out_ns += entry.release();
    } catch (...) {
      ++stats.dropped;
      throw;
    }
  }
}

void LayerInputSwap::State::restore(int64_t layer) {
  const auto found = entries.find(layer);
  if (found == entries.end()) return;
  SwapEntry& entry = found->second;
  const bool failed_before = entry.state() == SwapState::Failed;
  SwapRestore result;
  try {
    result = entry.restore();
  } catch (...) {
    if (!failed_before && entry.state() == SwapState::Failed) ++stats.dropped;
    throw;
  }
  switch (result.kind) {
    case SwapRestore::Kind::Nothing:
      return;
    case SwapRestore::Kind::Cancelled:
      ++stats.cancelled;
      stats.wait_out_ns += result.wait_ns;
      return;
    case SwapRestore::Kind::CopiedIn:
      ++stats.entries_in;
      stats.bytes_in += entry.bytes();
      ++(result.prefetched ? stats.prefetch_hits : stats.prefetch_misses);
      stats.wait_in_ns += result.wait_ns;
      return;
    case SwapRestore::Kind::Dropped:
      ++stats.dropped;
      entries.erase(found);
  }
}

void LayerInputSwap::State::step_backward(int64_t layer) {
  const std::lock_guard lock(mutex);
  restore(layer);
  // By entries, not by numbers: inputs that are given back inside of a chunk have none.
  auto next = entries.lower_bound(layer);
  for (int64_t ahead = 0; ahead < policy.prefetch_distance && next != entries.begin(); ++ahead) {
    --next;
    if (next->second.state() != SwapState::Host || next->second.prefetch()) continue;
    ++stats.dropped;
    next = entries.erase(next);
  }
}

void LayerInputSwap::State::drop() {
  const std::lock_guard lock(mutex);
  for (const auto& [layer, entry] : entries) {
    const SwapState state = entry.state();
    const bool under_way =
        state == SwapState::D2hIssued || state == SwapState::Host || state == SwapState::H2dIssued;
    stats.dropped += under_way ? 1 : 0;
  }
  entries.clear();
}

LayerInputSwap::LayerInputSwap(std::string name,
                               const SwapPolicy& policy,
                               std::shared_ptr<SwapBackend> backend)
    : state_(std::make_shared<State>(std::move(name), policy, std::move(backend))) {}

LayerInputSwap::~LayerInputSwap() = default;

void LayerInputSwap::share(const at::Tensor& t) {
  if (!t.defined() || !t.has_storage()) return;
  const std::lock_guard lock(state_->mutex);
  state_->shared.push_back(t.storage().getWeakStorageImpl());
}

SwapVerdict LayerInputSwap::offer(int64_t layer, const at::Tensor& input, int64_t holders) {
  return state_->offer(layer, input, holders);
}

// Why the gradient of the output comes before every reader of the input. A node of the layer that
// saved the input helps to make the output: there is a path of nodes from the output's node down to
// it. The engine runs a node when all nodes that send it gradients have run, so the output's node
// runs first, and this hook before that node. A region around the layer is replayed by its first
// reader: one of those nodes, or one of a loss beside the output (expert balance), which was made
// before the output's node; the engine of one device runs what is ready latest first. Whoever made
// the input (the layer before) and saved it runs after all its readers. A backward that leaves the
// output out (of a side output only) never comes here, and meets the guard of the released storage:
// an error, no wrong bytes.
void LayerInputSwap::trigger_at(int64_t layer, const at::Tensor& output) {
  if (!output.requires_grad()) {
    const std::lock_guard lock(state_->mutex);
    state_->restore(layer);
    return;
  }
  output.register_hook([state = state_, layer](const at::Tensor&) { state->step_backward(layer); });
}

void LayerInputSwap::step_backward(int64_t layer) {
  state_->step_backward(layer);
}

void LayerInputSwap::settle() {
  const std::lock_guard lock(state_->mutex);
  state_->release_all();
}

void LayerInputSwap::drop() {
  state_->drop();
}

std::optional<SwapState> LayerInputSwap::state_of(int64_t layer) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->entries.find(layer);
  if (found == state_->entries.end()) return std::nullopt;
  return found->second.state();
}

SwapStats LayerInputSwap::stats() const {
  const std::lock_guard lock(state_->mutex);
  return state_->stats;
}

}  // namespace lethe
