#include <atomic>
#include <chrono>

#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include "lethe/base/error.h"
#include "lethe/recompute/region_impl.h"
#include "lethe/recompute/region_trace_impl.h"

// Backward: values are pulled, a replay brings them back. Forward is in region_forward.cpp.
namespace lethe {
namespace {

namespace autograd = torch::autograd;

std::atomic<int64_t> regions_alive{0};

const char* name_of(Region::State state) {
  switch (state) {
    case Region::State::Building:
      return "building";
    case Region::State::Built:
      return "built";
    case Region::State::Replaying:
      return "replaying";
    case Region::State::Restored:
      return "restored";
    case Region::State::Cleared:
      return "cleared";
    case Region::State::Failed:
      return "failed";
  }
  return "unknown";
}

bool in_backward() {
  return autograd::get_current_graph_task_id() >= 0;
}

bool graph_is_retained() {
  return !in_backward() || autograd::get_current_graph_task_keep_graph();
}

}  // namespace

int64_t live_regions() {
  return regions_alive;
}

Region::Region(const RegionSpec& spec,
               const TapeOptions& options,
               RegionFn fn,
               ReplayContext context)
    : spec_(spec),
      options_(options),
      name_(std::make_shared<const std::string>(spec.name)),
      record_(std::make_shared<RegionRecord>()),
      fn_(std::make_shared<const RegionFn>(std::move(fn))),
      context_(std::move(context)) {
  record_->report.name = spec.name;
  record_->report.snapshot_bytes = context_->own_bytes();
  ++regions_alive;
}

Region::~Region() {
  --regions_alive;
}

void Region::require_usable() const {
  LETHE_CHECK(
      RecomputeError,
      state_ != State::Cleared && state_ != State::Failed && state_ != State::Replaying,
      "recompute {} [E6]: a region must be built or restored where its values are read, got "
      "one that is {}{}; run forward again",
      name(),
      name_of(state_),
      failure_.empty() ? "" : fmt::format(" ({})", failure_));
}

void Region::require_replayable() const {
  LETHE_CHECK(
      RecomputeError,
      !inputs_given_up_,
      "recompute {} [E7]: values must be read by one backward only, got a second one after "
      "the inputs were given up; retain the graph in the first, with a second_backward that "
      "allows it",
      name());
  LETHE_CHECK(
      RecomputeError,
      !c10::InferenceMode::is_enabled() && (in_backward() || at::GradMode::is_enabled()),
      "recompute {} [E9]: a replay must run in a backward pass or with grad mode on, got {}; "
      "leave the guard before",
      name(),
      c10::InferenceMode::is_enabled() ? "inference mode" : "grad mode off");
}

at::Tensor Region::take_slot(size_t slot) {
  const std::lock_guard lock(mutex_);
  require_usable();
  SlotValue& value = slots_[slot];
  const int task = autograd::get_current_graph_task_id();
  if (!value.tensor.defined()) {
    LETHE_CHECK(
        RecomputeError,
        task < 0 || value.taken_by != task,
        "recompute {} [E7]: a saved tensor must be unpacked once in a backward, got a second "
        "time; read the saved variables of a node once",
        name());
    replay(Trigger::Kind::Pull);
  }
  LETHE_CHECK(
      RecomputeError,
      version_of(value.tensor) == value.version,
      "recompute {} [E10]: a tensor that was saved inside of the region must stay unchanged, "
      "got version {} where {} was saved; do not write into it after it was saved",
      name(),
      version_of(value.tensor),
      value.version);
  const bool keep = options_.second_backward == SecondBackward::KeepValues && graph_is_retained();
  if (keep) return value.tensor;
  value.taken_by = task;
  return std::exchange(value.tensor, at::Tensor());
}

void Region::drop_slot(size_t slot) {
  const std::lock_guard lock(mutex_);
  if (slot >= slots_.size()) return;
  slots_[slot].tensor.reset();
  slots_[slot].wanted = false;
}

at::Tensor Region::read_output(size_t k, const TensorMeta& meta) {
  const std::lock_guard lock(mutex_);
  require_usable();
  Output& output = outputs_[k];
  LETHE_CHECK(
      RecomputeError,
      !output.changed(),
      "recompute {} [E10]: output {} must stay unchanged once it was saved for backward, got "
      "version {} where the region returned {}; do not write into it, or clone it before",
      name(),
      k,
      output.version.current_version(),
      output.built_version);
  if (!output.restored.defined()) {
    if (output.released_at.empty())
      if (auto storage = output.storage.lock())
        return tensor_over(c10::Storage(std::move(storage)), output.keys, meta);
    replay(Trigger::Kind::Pull);
  }
  return tensor_over(output.restored.storage(), output.restored.key_set(), meta);
}

void Region::add_view(size_t k) {
  const std::lock_guard lock(mutex_);
  ++outputs_[k].views;
  ++record_->report.handles;
  ++record_->handles[k];
}

void Region::drop_view(size_t k) {
  const std::lock_guard lock(mutex_);
  if (k >= outputs_.size()) return;
  if (--outputs_[k].views == 0) outputs_[k].restored.reset();
}

bool Region::can_replay() {
  const std::lock_guard lock(mutex_);
  return state_ != State::Cleared && state_ != State::Failed && !inputs_given_up_;
}

void Region::restore() {
  restore_by(Trigger::Kind::Explicit);
}

void Region::restore_by(Trigger::Kind cause) {
  const std::lock_guard lock(mutex_);
  require_usable();
  if (missing_slots() > 0 || wants_outputs()) replay(cause);
}

void Region::expect_prefetch() {
  const std::lock_guard lock(mutex_);
  prefetch_due_ = true;
}

void Region::prefetch() {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(prefetch_due_, false)) return;
  restore_by(Trigger::Kind::OnGradOf);
}

void Region::clear() {
  const std::lock_guard lock(mutex_);
  state_ = State::Cleared;
  drop_values();
  give_up_inputs();
}

size_t Region::missing_slots() const {
  size_t missing = 0;
  for (const SlotValue& value : slots_) missing += value.wanted && !value.tensor.defined() ? 1 : 0;
  return missing;
}

bool Region::wants(const Output& output) const {
  if (output.restored.defined()) return false;
  const bool alive = !output.storage.expired();
  return alive ? !output.released_at.empty() : output.owned && output.views > 0;
}

bool Region::wants_outputs() const {
  for (const Output& output : outputs_)
    if (wants(output)) return true;
  return false;
}

void Region::replay(Trigger::Kind cause) {
  require_replayable();
  const TraceSpan span(TraceEvent::Kind::ReplayBegin, name(), cause);
  const auto start = std::chrono::steady_clock::now();
  const bool building = state_ == State::Building;
  RegionReport& report = record_->report;
  ++report.replays;
  const bool late = std::exchange(prefetch_due_, false) && in_backward();
  if (late) ++report.late_restores;
  state_ = State::Replaying;
  Scope scope;
  scope.region = this;
  scope.replay = true;
  scope.building = building;
  scope.needed = missing_slots();
  scope.wants_outputs = !building && wants_outputs();
  try {
    run_replay(scope);
  } catch (const RecomputeError& error) {
    const std::string text = with_difference(error.what(), scope);
    fail_with(text);
    throw RecomputeError(text);
  } catch (const std::exception& error) {
    fail_with(error.what());
    throw;
  } catch (...) {
    fail_with("an exception of unknown type");
    throw;
  }
  if (is_tracing())
    trace({.kind = TraceEvent::Kind::Restore,
           .name = name(),
           .bytes = restored_bytes(),
           .cause = cause,
           .late = late});
  end_replay(building);
  report.replay_ns +=
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start)
          .count();
}

Tensors Region::replay_inputs(Scope& scope) {
  Tensors tensors;
  for (const Input& input : inputs_) {
    at::Tensor t = input.saved.get();
    if (input.defined) {
      t = t.detach().requires_grad_(input.requires_grad);
      scope.inputs.push_back({storage_of(t), input.leaf});
    }
    tensors.push_back(std::move(t));
  }
  return tensors;
}

Tensors Region::call_again(const Tensors& inputs, Scope& scope) {
  const bool compares = is_tracing() && !operators_.empty();
  const NoteOperators notes(compares ? &scope.operators : nullptr);
  const auto fn = fn_;
  Tensors out = (*fn)(inputs);
  scope.returned = true;
  return out;
}

std::string Region::with_difference(const char* error, const Scope& scope) const {
  const std::string difference =
      operator_difference(operators_, scope.operators, scope.returned && is_tracing());
  return difference.empty() ? error : fmt::format("{}; {} {}", error, name(), difference);
}

void Region::run_replay(Scope& scope) {
  require_parameters();
  // Below this the engine's grad mode and random state are those of forward.
  const Tensors inputs = replay_inputs(scope);
  const ReplayContext::Installed context(*context_);
  const ScopeGuard guard(&scope);
  try {
    const Tensors out = call_again(inputs, scope);
    if (!scope.building) take_outputs(out);
  } catch (const StopReplay& stop) {
    if (stop.region != this) throw;
    ++record_->report.early_stops;
    if (is_tracing())
      trace({.kind = TraceEvent::Kind::EarlyStop,
             .name = name(),
             .position = static_cast<int64_t>(scope.position),
             .positions = static_cast<int64_t>(saved_.size())});
    return;
  }
  LETHE_CHECK(RecomputeError,
              scope.building || scope.call == calls_.size(),
              "recompute {} [R6.18]: a replay must make {} kept calls as forward did, got {}; the "
              "function must do the same each time",
              name(),
              calls_.size(),
              scope.call);
  LETHE_CHECK(RecomputeError,
              scope.building || scope.choice == choices_.size(),
              "recompute {} [E4]: a replay must ask for {} recorded choices as forward did, got "
              "{}; the function must do the same each time",
              name(),
              choices_.size(),
              scope.choice);
  LETHE_CHECK(RecomputeError,
              scope.building || scope.position == saved_.size(),
              "recompute {} [E4]: a replay must save as many tensors as forward, {}, got {}; the "
              "function must do the same operations each time",
              name(),
              saved_.size(),
              scope.position);
}

void Region::end_replay(bool building) {
  if (building) {
    state_ = State::Building;
    return;
  }
  state_ = State::Restored;
  if (!in_backward()) return;
  if (!graph_is_retained() || options_.second_backward == SecondBackward::Refuse) {
    hold_live_outputs();
    give_up_inputs();
  } else if (options_.second_backward == SecondBackward::ReplayAgain) {
    autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this()] {
      const auto region = weak.lock();
      if (!region) return;
      const std::lock_guard lock(region->mutex_);
      if (region->state_ == State::Restored) region->drop_values();
    });
  }
}

// Outputs that somebody still held were not asked of the replay, and no other one will come.
void Region::hold_live_outputs() {
  for (Output& output : outputs_) {
    if (output.views == 0 || output.restored.defined()) continue;
    if (auto storage = output.storage.lock())
      output.restored = tensor_over(c10::Storage(std::move(storage)), output.keys, output.meta);
  }
}

void Region::stop_if_done(const Scope& scope) const {
  if (scope.captured != scope.needed || scope.wants_outputs) return;
  const bool allowed = scope.building || spec_.stop == EarlyStop::On ||
                       (spec_.stop == EarlyStop::AfterMark && scope.mark_passed);
  if (allowed) throw StopReplay{this};
}

void Region::fail_with(const std::string& text) {
  state_ = State::Failed;
  failure_ = text.substr(0, text.find('\n'));
  drop_values();
  give_up_inputs();
}

void Region::drop_values() {
  for (SlotValue& value : slots_) value.tensor.reset();
  for (Output& output : outputs_) output.restored.reset();
}

void Region::give_up_inputs() {
  inputs_given_up_ = true;
  inputs_.clear();
  parameters_.clear();
  choices_.clear();
  calls_.clear();
  operators_.clear();
  context_.reset();
  fn_.reset();
}

}  // namespace lethe
