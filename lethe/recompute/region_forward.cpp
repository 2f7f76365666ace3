#include <unordered_set>

#include <ATen/SequenceNumber.h>

#include "lethe/base/error.h"
#include "lethe/core/byte_accounting.h"
#include "lethe/core/describe.h"
#include "lethe/recompute/region_impl.h"
#include "lethe/recompute/region_trace_impl.h"

// Forward: what is saved becomes slots, what is returned is described; and what a replay must find
// again at the same places.
namespace lethe {
namespace {

bool is_recorded(const c10::StorageImpl* storage, const Scope& scope) {
  for (const c10::Storage& choice : scope.choices)
    if (choice.unsafeGetStorageImpl() == storage) return true;
  return false;
}

bool is_input(const c10::StorageImpl* storage, const Scope& scope) {
  for (const ScopeInput& input : scope.inputs)
    if (input.storage != nullptr && input.storage == storage) return true;
  return false;
}

// In a replay the inputs are leaves, whatever they were in forward: the numbers of slots of nested
// regions must not depend on that.
bool is_parameter(const at::Tensor& t, const Scope& scope) {
  if (!t.is_leaf() || !t.requires_grad()) return false;
  const c10::StorageImpl* storage = storage_of(t);
  for (const Scope* s = &scope; s != nullptr; s = s->parent) {
    if (!s->replay) continue;
    for (const ScopeInput& input : s->inputs)
      if (input.storage == storage && !input.leaf) return false;
  }
  return true;
}

// The tensor objects through which outputs of this storage are reachable: outputs and their bases.
// More references than these belong to somebody else.
bool held_by_outputs_only(const at::Tensor& output, const Tensors& all) {
  std::unordered_set<const c10::TensorImpl*> objects;
  size_t same_object = 0;
  for (const at::Tensor& t : all) {
    if (!t.defined() || storage_of(t) != storage_of(output)) continue;
    objects.insert(t.unsafeGetTensorImpl());
    if (t.is_view()) objects.insert(t._base().unsafeGetTensorImpl());
    same_object += t.is_same(output) ? 1 : 0;
  }
  if (output.storage().use_count() > objects.size()) return false;
  bool is_base = false;
  for (const at::Tensor& t : all)
    is_base = is_base || (t.defined() && t.is_view() && t._base().is_same(output));
  return is_base || output.use_count() == same_object;
}

std::string reason_to_keep(const at::Tensor& output, const Tensors& all, const Scope& scope) {
  if (!output.defined()) return "is undefined";
  if (!is_plain_strided(output)) return "has no plain storage";
  if (output.numel() == 0) return "is empty";
  const c10::StorageImpl* storage = storage_of(output);
  if (is_input(storage, scope)) return "shares the storage of an input";
  if (is_parameter(output, scope)) return "is a parameter";
  if (is_recorded(storage, scope)) return "is a recorded choice or a kept result";
  if (!output.storage().unsafeGetStorageImpl()->resizable()) return "has memory of somebody else";
  if (!held_by_outputs_only(output, all)) return "is held by somebody else when the region ends";
  return {};
}

}  // namespace

Region::Output::Output(const at::Tensor& t)
    : meta(t),
      keys(t.key_set()),
      storage(weak_storage_of(t)),
      node(t.grad_fn()),
      version(t.unsafeGetTensorImpl()->version_counter()),
      built_version(version_of(t)),
      bytes(storage_of(t) == nullptr ? 0 : static_cast<int64_t>(t.storage().nbytes())) {}

bool Region::Output::changed() const {
  return version.enabled() && version.current_version() != built_version;
}

Tensors Region::build(const Tensors& inputs, Scope* parent) {
  TraceSpan span(TraceEvent::Kind::RunBegin, name());
  Scope scope;
  scope.parent = parent;
  scope.region = this;
  const uint64_t first_node = at::sequence_number::peek();
  Tensors out;
  try {
    take_inputs(inputs, scope);
    out = call_forward(inputs, scope);
  } catch (const std::exception& error) {
    const std::lock_guard lock(mutex_);
    fail_with(error.what());
    throw;
  } catch (...) {
    const std::lock_guard lock(mutex_);
    fail_with("forward was left early");
    throw;
  }
  const std::lock_guard lock(mutex_);
  describe_outputs(out, scope);
  note_parameters(out, inputs, first_node);
  note_storages();
  if (is_tracing()) span.set_bytes(given_up_bytes());
  drop_values();  // of a backward that the function itself ran
  state_ = State::Built;
  return out;
}

void Region::take_inputs(const Tensors& inputs, Scope& scope) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& t : inputs) {
    const bool defined = t.defined();
    inputs_.push_back({pack_above(t, scope.parent, name_),
                       defined,
                       defined && t.requires_grad(),
                       defined && t.is_leaf()});
    if (defined) scope.inputs.push_back({storage_of(t), t.is_leaf()});
  }
}

Tensors Region::call_forward(const Tensors& inputs, Scope& scope) {
  std::vector<uint32_t> versions;
  for (const at::Tensor& t : inputs) versions.push_back(t.defined() ? version_of(t) : 0);
  const bool watch = options_.checked && !spec_.random;
  const at::Tensor random = watch ? random_state() : at::Tensor();
  Tensors out;
  {
    const ScopeGuard guard(&scope);
    const NoteOperators notes(is_tracing() ? &operators_ : nullptr);
    const auto fn = fn_;
    out = (*fn)(inputs);
  }
  for (size_t i = 0; i < inputs.size(); ++i)
    LETHE_CHECK(
        RecomputeError,
        !inputs[i].defined() || version_of(inputs[i]) == versions[i],
        "recompute {} [E10]: a region must not write into its inputs, got version {} of input "
        "{} after version {}; write into a fresh tensor",
        name(),
        version_of(inputs[i]),
        i,
        versions[i]);
  LETHE_CHECK(RecomputeError,
              !watch || hash_values(random) == hash_values(random_state()),
              "recompute {} [E5]: a region with random = false must draw no random numbers, got a "
              "generator that moved; declare random = true",
              name());
  return out;
}

Region::Role Region::role_of(const at::Tensor& t, const Scope& scope) const {
  const c10::StorageImpl* storage = storage_of(t);
  if (is_input(storage, scope) || is_recorded(storage, scope)) return Role::Above;
  return is_parameter(t, scope) ? Role::Parameter : Role::Slot;
}

SavedRef Region::pack(const at::Tensor& t, Scope& scope) {
  if (!scope.replay) return pack_forward(t, scope);
  capture(t, scope);
  return SavedRef::kept(t, name_);
}

SavedRef Region::pack_forward(const at::Tensor& t, Scope& scope) {
  ++scope.position;
  const Role role = role_of(t, scope);
  saved_.push_back({role, slots_.size(), TensorMeta(t), weak_storage_of(t), version_of(t), {}});
  if (scope.kept != nullptr) ++scope.kept->packs;
  if (role != Role::Slot) return pack_above(t, scope.parent, name_);
  return scope.kept != nullptr ? pack_kept(t, *scope.kept) : pack_slot(t);
}

SavedRef Region::pack_slot(const at::Tensor& t) {
  const size_t slot = slots_.size();
  if (options_.checked) saved_.back().hash = hash_values(t);
  slots_.emplace_back();
  ++record_->report.slots;
  if (const c10::StorageImpl* storage = storage_of(t))
    record_->inside.push_back({weak_storage_of(t), static_cast<int64_t>(storage->nbytes())});
  return SavedRef::slot(shared_from_this(), slot);
}

void Region::capture(const at::Tensor& t, Scope& scope) {
  const size_t position = scope.position++;
  LETHE_CHECK(RecomputeError,
              position < saved_.size(),
              "recompute {} [E4]: a replay must save as many tensors as forward, {}, got more; the "
              "function must do the same operations each time",
              name(),
              saved_.size());
  const Saved& saved = saved_[position];
  check_capture(saved, position, t);
  if (saved.role != Role::Slot) return;
  fill_slot(saved.slot, t, scope);
  stop_if_done(scope);
}

void Region::fill_slot(size_t slot, const at::Tensor& t, Scope& scope) {
  SlotValue& value = slots_[slot];
  if (!value.wanted || value.tensor.defined()) return;
  recount_saved(t);
  value.tensor = t.tensor_data();
  value.version = version_of(t);
  ++scope.captured;
}

void Region::check_capture(const Saved& saved, size_t position, const at::Tensor& t) const {
  const TensorMeta meta(t);
  LETHE_CHECK(RecomputeError,
              meta == saved.meta,
              "recompute {} [E4]: saved tensor {} must be {} as in forward, got {}; the operations "
              "differ from this position on: the function must do the same each time",
              name(),
              position,
              saved.meta.text(),
              meta.text());
  const bool same = storage_of(t) != nullptr && !saved.storage.expired() &&
                    saved.storage._unsafe_get_target() == storage_of(t);
  LETHE_CHECK(RecomputeError,
              same || saved.role != Role::Parameter,
              "recompute {} [E10]: the parameter saved at position {} must be that of forward, got "
              "another storage; change parameters after backward only",
              name(),
              position);
  LETHE_CHECK(
      RecomputeError,
      !same || version_of(t) == saved.version,
      "recompute {} [E10]: the tensor saved at position {} must stay unchanged between forward "
      "and replay, got version {} where forward saw {}; do not write into it before backward",
      name(),
      position,
      version_of(t),
      saved.version);
  LETHE_CHECK(
      RecomputeError,
      !options_.checked || !same || saved.role != Role::Slot,
      "recompute {} [CR3]: a region must get every tensor that is no parameter as an input, "
      "got a captured one of shape {} (saved at position {}); pass it as an input",
      name(),
      shape_text(t),
      position);
  LETHE_CHECK(RecomputeError,
              !saved.hash || *saved.hash == hash_values(t),
              "recompute {} [E4]: saved tensor {} must have the bytes of forward, got others; the "
              "function must be deterministic and read nothing that changes",
              name(),
              position);
}

void Region::describe_outputs(const Tensors& out, const Scope& scope) {
  outputs_.reserve(out.size());
  for (size_t k = 0; k < out.size(); ++k) {
    LETHE_CHECK(
        RecomputeError,
        out[k].defined(),
        "recompute {} [E4]: every output must be a tensor, got an undefined one as output {}; "
        "leave it out",
        name(),
        k);
    outputs_.emplace_back(out[k]);
    Output& output = outputs_.back();
    output.first = k;
    for (size_t j = 0; j < k; ++j)
      if (storage_of(out[j]) != nullptr && storage_of(out[j]) == storage_of(out[k]))
        output.first = std::min(output.first, j);
    const std::string reason = reason_to_keep(out[k], out, scope);
    output.owned = reason.empty();
    if (!output.owned)
      record_->report.retained_outputs.push_back(fmt::format("out{}: {}", k, reason));
    if (options_.checked) output.hash = hash_values(out[k]);
  }
  record_->handles.resize(out.size());
  record_->released.resize(out.size());
}

void Region::note_storages() {
  std::unordered_set<const c10::StorageImpl*> seen;
  std::erase_if(record_->inside, [&](const SavedStorage& saved) {
    return !seen.insert(saved.storage._unsafe_get_target()).second;
  });
  for (const Output& output : outputs_)
    record_->outputs.push_back({output.storage, output.owned ? output.bytes : 0});
}

}  // namespace lethe
