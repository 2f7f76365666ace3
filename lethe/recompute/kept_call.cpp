#include "lethe/recompute/kept_call.h"

#include <algorithm>
#include <chrono>

#include "lethe/base/error.h"
#include "lethe/recompute/region_impl.h"

// Calls whose results stay: what they save is kept, but for their arguments, which a replay brings
// back like every other value (spec 3 6.4).
namespace lethe {
namespace {

using Clock = std::chrono::steady_clock;

int64_t ns_since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
}

// The input that has the storage of `t`; inputs.size() where none has.
size_t find_input(const at::Tensor& t, const Tensors& inputs) {
  const c10::StorageImpl* storage = storage_of(t);
  const auto found = std::find_if(inputs.begin(), inputs.end(), [&](const at::Tensor& input) {
    return storage != nullptr && storage_of(input) == storage;
  });
  return static_cast<size_t>(found - inputs.begin());
}

std::vector<TensorMeta> metas_of(const Tensors& tensors) {
  std::vector<TensorMeta> metas;
  for (const at::Tensor& t : tensors)
    if (t.defined()) metas.emplace_back(t);
  return metas;
}

std::vector<uint32_t> versions_of(const Tensors& tensors) {
  std::vector<uint32_t> versions;
  for (const at::Tensor& t : tensors) versions.push_back(t.defined() ? version_of(t) : 0);
  return versions;
}

}  // namespace

const KeptName* Region::kept_name(std::string_view name) const {
  const auto found = std::find_if(spec_.keep.begin(), spec_.keep.end(), [&](const KeptName& kept) {
    return kept.name == name;
  });
  return found == spec_.keep.end() ? nullptr : &*found;
}

SavedRef Region::pack_kept(const at::Tensor& t, KeptCall& call) {
  const size_t input = find_input(t, *call.inputs);
  if (input < call.inputs->size()) {
    call.arguments.push_back({saved_.size() - 1, input});
    return pack_slot(t);
  }
  saved_.back().role = Role::Kept;
  note_kept(call.name, t, 0, 0);
  return SavedRef::kept(t, name_);
}

void Region::note_kept(const std::string& name,
                       const at::Tensor& t,
                       int64_t calls,
                       int64_t forward_ns) {
  auto& rows = record_->report.kept;
  auto row =
      std::find_if(rows.begin(), rows.end(), [&](const KeptReport& r) { return r.name == name; });
  if (row == rows.end()) row = rows.insert(rows.end(), KeptReport{.name = name});
  row->calls += calls;
  row->forward_ns += forward_ns;
  if (storage_of(t) == nullptr) return;
  record_->kept.push_back({weak_storage_of(t), static_cast<int64_t>(t.storage().nbytes())});
  record_->kept_row.push_back(static_cast<size_t>(row - rows.begin()));
}

void Region::check_keepable(const KeptCall& call, const Tensors& out, const Scope& scope) const {
  for (const Scope* s = scope.parent; s != nullptr; s = s->parent)
    LETHE_CHECK(RecomputeError,
                s->region == nullptr,
                "recompute {} [R6.17]: calls may be kept in a region that is in no other one, got "
                "'{}' inside of {}; keep it in the outer one, or do not nest them",
                name(),
                call.name,
                s->region->name());
  for (size_t k = 0; k < out.size(); ++k)
    LETHE_CHECK(RecomputeError,
                find_input(out[k], *call.inputs) == call.inputs->size(),
                "recompute {} [R6.21]: a kept call must return fresh tensors, got output {} of "
                "'{}', which shares the storage of an input; do not keep it",
                name(),
                k,
                call.name);
}

Tensors Region::keep_call(std::string_view name,
                          const RegionFn& fn,
                          const Tensors& in,
                          Scope& scope) {
  KeptCall& call = calls_.emplace_back();
  call.name = name;
  call.inputs = &in;
  call.metas = metas_of(in);
  const std::vector<uint32_t> versions = versions_of(in);
  const at::Tensor random = spec_.random ? random_state() : at::Tensor();
  const auto start = Clock::now();
  scope.kept = &call;
  Tensors out = fn(in);
  scope.kept = nullptr;
  note_kept(call.name, at::Tensor(), 1, ns_since(start));
  check_keepable(call, out, scope);
  LETHE_CHECK(RecomputeError,
              versions_of(in) == versions,
              "recompute {} [R6.21]: a kept call must not write into its inputs, got '{}', which "
              "does; do not keep it",
              this->name(),
              name);
  LETHE_CHECK(RecomputeError,
              !random.defined() || hash_values(random) == hash_values(random_state()),
              "recompute {} [R6.24]: a kept call must draw no random numbers, got '{}', which "
              "does; do not keep it",
              this->name(),
              name);
  call.inputs = nullptr;
  call.versions = versions_of(out);
  for (const at::Tensor& t : out) {
    // A detached tensor has the version counter of its source: later writes are seen.
    call.outputs.push_back(t.defined() ? t.detach() : at::Tensor());
    call.requires_grad.push_back(t.defined() && t.requires_grad());
    note_kept(call.name, t, 0, 0);
    if (storage_of(t) != nullptr) scope.choices.push_back(t.storage());
  }
  return out;
}

// What the call saved of its input, as a view that sees later writes into the input.
void Region::fill_argument(const KeptCall::Argument& argument,
                           const Tensors& inputs,
                           Scope& scope) {
  const Saved& saved = saved_[argument.position];
  const at::Tensor& input = inputs[argument.input];
  const at::Tensor t = tensor_over(input.storage(), input.key_set(), saved.meta);
  t.unsafeGetTensorImpl()->set_version_counter(input.unsafeGetTensorImpl()->version_counter());
  check_capture(saved, argument.position, t);
  fill_slot(saved.slot, t, scope);
}

Tensors Region::skip_call(std::string_view name, const Tensors& inputs, Scope& scope) {
  const bool is_left = scope.call < calls_.size();
  LETHE_CHECK(RecomputeError,
              is_left && calls_[scope.call].name == name,
              "recompute {} [R6.18]: a replay must make the kept calls of forward, next {}, got "
              "'{}'; the function must do the same each time",
              this->name(),
              is_left ? "'" + calls_[scope.call].name + "'" : "none any more",
              name);
  const KeptCall& call = calls_[scope.call++];
  LETHE_CHECK(RecomputeError,
              metas_of(inputs) == call.metas,
              "recompute {} [E4]: the inputs of the kept call '{}' must be those of forward in "
              "shape, strides and dtype, got others; the function must do the same each time",
              this->name(),
              name);
  for (const KeptCall::Argument& argument : call.arguments) fill_argument(argument, inputs, scope);
  scope.position += call.packs;
  stop_if_done(scope);
  LETHE_CHECK(RecomputeError,
              kept_name(name)->allow_mutation || versions_of(call.outputs) == call.versions,
              "recompute {} [R6.19]: what is kept of '{}' must stay unchanged until backward, got "
              "a result that was written to; clone it before writing, do not keep it, or allow it "
              "(KeptName::allow_mutation, --save-units-allow-mutation)",
              this->name(),
              name);
  Tensors out;
  for (size_t k = 0; k < call.outputs.size(); ++k) {
    const at::Tensor& kept = call.outputs[k];
    if (!kept.defined()) {
      out.emplace_back();
      continue;
    }
    out.push_back(kept.detach().set_requires_grad(call.requires_grad[k]));
    scope.choices.push_back(kept.storage());
  }
  return out;
}

Tensors op_call(std::string_view name, const RegionFn& fn, const Tensors& inputs) {
  Scope* const scope = current_scope();
  const bool keeps = scope != nullptr && scope->region != nullptr && scope->kept == nullptr &&
                     scope->region->kept_name(name) != nullptr;
  if (!keeps) return fn(inputs);
  const NoteOperators unnoted(nullptr);
  return scope->replay ? scope->region->skip_call(name, inputs, *scope)
                       : scope->region->keep_call(name, fn, inputs, *scope);
}

}  // namespace lethe
