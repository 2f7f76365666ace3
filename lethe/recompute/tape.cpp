#include <unordered_set>

#include "lethe/base/error.h"
#include "lethe/core/describe.h"
#include "lethe/recompute/hook_engine_impl.h"
#include "lethe/recompute/region_impl.h"
#include "lethe/recompute/region_trace_impl.h"
#include "lethe/recompute/tape_state_impl.h"

namespace lethe {
namespace {

TapeState* innermost_tape() {
  for (Scope* s = current_scope(); s != nullptr; s = s->parent)
    if (s->tape != nullptr) return s->tape;
  return nullptr;
}

ReplayContext capture_context(const RegionSpec& spec, TapeState* tape) {
  at::Tensor none;
  if (tape == nullptr) return {spec.random, none};
  const std::lock_guard lock(tape->mutex);
  return {spec.random, tape->last_random};
}

}  // namespace

std::optional<TapeState::OutputOf> TapeState::find_output(const at::Tensor& t) {
  if (!is_plain_strided(t)) return std::nullopt;
  std::optional<OutputOf> found;
  {
    const std::lock_guard lock(mutex);
    const auto entry = outputs.find(storage_of(t));
    if (entry == outputs.end() || entry->second.storage.expired()) return std::nullopt;
    found = entry->second.output;
  }
  // Without the lock: a region may be replaying, and its function may come here.
  const Region::Output& output = found->region->outputs()[found->index];
  if (output.changed() || version_of(t) != output.built_version || !found->region->can_replay())
    return std::nullopt;
  return found;
}

void TapeState::add(const std::shared_ptr<Region>& region) {
  const std::lock_guard lock(mutex);
  by_name[region->name()] = region;
  regions.push_back(region);
  records.push_back(region->record());
}

void TapeState::sweep() {
  std::vector<OutputOf> unused;  // told of and destroyed without the lock
  {
    const std::lock_guard lock(mutex);
    for (auto entry = outputs.begin(); entry != outputs.end();) {
      if (entry->second.storage.expired()) {
        unused.push_back(std::move(entry->second.output));
        entry = outputs.erase(entry);
      } else {
        ++entry;
      }
    }
  }
  if (!is_tracing()) return;
  for (const OutputOf& output : unused) output.region->trace_release(output.index);
}

Tensors run_region(const RegionSpec& spec, const RegionFn& fn, const Tensors& inputs) {
  if (!at::GradMode::is_enabled()) return fn(inputs);
  Scope* const parent = current_scope();
  if (parent == nullptr) {
    Tape own;
    return own.run(spec, fn, inputs);
  }
  TapeState* const tape = innermost_tape();
  const auto region = std::make_shared<Region>(
      spec, tape == nullptr ? TapeOptions{} : tape->options, fn, capture_context(spec, tape));
  Tensors out = region->build(inputs, parent);
  if (tape == nullptr) return out;
  if (!in_replay()) tape->add(region);
  // Inside of another region the outputs are that region's saved tensors.
  if (parent->region == nullptr && spec.release_outputs) tape->register_outputs(region);
  tape->sweep();
  return out;
}

Tensors run_region(std::string_view name, const RegionFn& fn, const Tensors& inputs) {
  return run_region(RegionSpec{.name = std::string(name)}, fn, inputs);
}

void TapeState::register_outputs(const std::shared_ptr<Region>& region) {
  const std::lock_guard lock(mutex);
  const auto& all = region->outputs();
  for (size_t k = 0; k < all.size(); ++k)
    if (all[k].owned && all[k].first == k)
      outputs.insert_or_assign(all[k].storage._unsafe_get_target(),
                               Entry{{region, k}, all[k].storage});
}

std::shared_ptr<Region> TapeState::find(std::string_view name) const {
  const std::lock_guard lock(mutex);
  const auto found = by_name.find(name);
  return found == by_name.end() ? nullptr : found->second.lock();
}

struct TapeScope::Impl {
  explicit Impl(std::shared_ptr<TapeState> state)
      : tape(std::move(state)),
        scope{.parent = current_scope(), .tape = tape.get()},
        guard(&scope) {}

  std::shared_ptr<TapeState> tape;
  Scope scope;
  ScopeGuard guard;
};

TapeScope::TapeScope(Tape& tape) {
  install_hook_engine();
  impl_ = std::make_unique<Impl>(tape.state_);
}

TapeScope::~TapeScope() {
  impl_->tape->sweep();
}

Tape::Tape(TapeOptions options) : state_(std::make_shared<TapeState>()) {
  state_->options = options;
}

Tape::~Tape() = default;

Tensors Tape::run(const RegionSpec& spec, const RegionFn& fn, const Tensors& inputs) {
  for (const Scope* s = current_scope(); s != nullptr; s = s->parent)
    if (s->region != nullptr || s->tape == state_.get()) return run_region(spec, fn, inputs);
  const TapeScope scope(*this);
  return run_region(spec, fn, inputs);
}

Tensors Tape::run(std::string_view name, const RegionFn& fn, const Tensors& inputs) {
  return run(RegionSpec{.name = std::string(name)}, fn, inputs);
}

at::Tensor Tape::run(const RegionSpec& spec, const TensorFn& fn, const at::Tensor& input) {
  return run(spec, [fn](const Tensors& in) { return Tensors{fn(in[0])}; }, {input})[0];
}

at::Tensor Tape::run(std::string_view name, const TensorFn& fn, const at::Tensor& input) {
  return run(RegionSpec{.name = std::string(name)}, fn, input);
}

void Tape::event(std::string_view name) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->event = name;
  }
  state_->sweep();
}

int64_t Tape::release(std::string_view region, size_t output) {
  std::string event;
  {
    const std::lock_guard lock(state_->mutex);
    event = state_->event;
  }
  return state_->require(region)->release(output, event);
}

void Tape::restore(std::string_view region) {
  state_->require(region)->restore();
}

std::shared_ptr<Region> TapeState::needed(std::string_view name) const {
  {
    const std::lock_guard lock(mutex);
    if (by_name.contains(name)) return by_name.find(name)->second.lock();
  }
  return require(name);
}

std::shared_ptr<Region> TapeState::require(std::string_view name) const {
  auto region = find(name);
  LETHE_CHECK(
      RecomputeError,
      region != nullptr,
      "recompute {} [E6]: a region must have run on this tape and be needed by a graph, got "
      "none; check the name, and that forward ran",
      name);
  return region;
}

void Tape::require_freed(std::string_view region, size_t output) const {
  const auto found = state_->find(region);
  if (!found) return;
  const auto& all = found->outputs();
  LETHE_CHECK(
      RecomputeError,
      output < all.size(),
      "recompute {} [E6]: a freed output must be one of {}, got number {}; name an output that "
      "the region returns",
      region,
      all.size(),
      output);
  const auto storage = all[output].storage.lock();
  const bool freed = !storage || storage->nbytes() == 0;
  const std::lock_guard lock(state_->mutex);
  LETHE_CHECK(RecomputeError,
              freed,
              "recompute {}.out{} [DC2]: its bytes must be free after {}, got {} references to its "
              "storage; hand the tensor on by move, or release it explicitly",
              region,
              output,
              state_->event,
              storage.use_count() - 1);
}

void Tape::clear() {
  std::vector<std::weak_ptr<Region>> regions;
  {
    const std::lock_guard lock(state_->mutex);
    regions.swap(state_->regions);
    state_->by_name.clear();
    state_->records.clear();
    state_->last_random.reset();
  }
  for (const auto& weak : regions)
    if (const auto region = weak.lock()) region->clear();
  std::unordered_map<const c10::StorageImpl*, TapeState::Entry> outputs;
  const std::lock_guard lock(state_->mutex);
  outputs.swap(state_->outputs);
}

bool in_replay() {
  for (const Scope* s = current_scope(); s != nullptr; s = s->parent)
    if (s->replay) return true;
  return false;
}

void off_record(const std::function<void()>& f) {
  const NoteOperators unnoted(nullptr);
  f();
}

void once(const std::function<void()>& f) {
  if (!in_replay()) off_record(f);
}

void allow_early_stop() {
  Scope* const scope = current_scope();
  if (scope == nullptr || !scope->replay) return;
  scope->mark_passed = true;
  scope->region->stop_if_done(*scope);
}

Tensors recorded(const std::function<Tensors()>& choose) {
  const NoteOperators unnoted(nullptr);
  Scope* replay = current_scope();
  while (replay != nullptr && !replay->replay) replay = replay->parent;
  Tensors choice;
  if (replay != nullptr) {
    choice = replay->region->next_choice(*replay);
  } else {
    // A replay skips it: it must save nothing and keep no call.
    const at::NoGradGuard no_grad;
    const ScopeGuard outside(nullptr);
    choice = choose();
  }
  for (Scope* s = current_scope(); s != nullptr && s->region != nullptr; s = s->parent) {
    if (!s->replay) s->region->keep_choice(choice);
    for (const at::Tensor& t : choice)
      if (t.defined() && t.has_storage()) s->choices.push_back(t.storage());
  }
  return choice;
}

RecomputeObjects recompute_objects() {
  return {live_regions(), live_saved_refs()};
}

}  // namespace lethe
