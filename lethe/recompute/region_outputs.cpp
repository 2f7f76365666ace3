#include "lethe/base/error.h"
#include "lethe/core/storage_guard.h"
#include "lethe/recompute/region_impl.h"
#include "lethe/recompute/region_trace_impl.h"

// Outputs: checked and handed over by a replay, released and refilled where somebody outside of
// autograd holds them; and the recorded choices.
namespace lethe {

void Region::take_outputs(const Tensors& out) {
  LETHE_CHECK(RecomputeError,
              out.size() == outputs_.size(),
              "recompute {} [E4]: a replay must return {} outputs as forward did, got {}; the "
              "function must do the same each time",
              name(),
              outputs_.size(),
              out.size());
  for (size_t k = 0; k < out.size(); ++k) check_output(k, out);
  for (size_t k = 0; k < out.size(); ++k) {
    Output& output = outputs_[k];
    if (!wants(output)) continue;
    if (output.views > 0) output.restored = out[k].detach();
    if (output.released_at.empty()) continue;
    if (const auto storage = output.storage.lock()) {
      refill_storage(*storage, out[k].storage());
      for (Output& other : outputs_)
        if (other.first == output.first) other.released_at.clear();
    }
  }
}

void Region::check_output(size_t k, const Tensors& out) const {
  const Output& output = outputs_[k];
  const at::Tensor& t = out[k];
  LETHE_CHECK(
      RecomputeError,
      t.defined() && TensorMeta(t) == output.meta,
      "recompute {} [E4]: output {} must be {} as in forward, got {}; the function must do the "
      "same each time",
      name(),
      k,
      output.meta.text(),
      t.defined() ? TensorMeta(t).text() : "none");
  const bool same_storage =
      storage_of(t) == nullptr || (static_cast<int64_t>(t.storage().nbytes()) == output.bytes &&
                                   storage_of(t) == storage_of(out[output.first]));
  LETHE_CHECK(
      RecomputeError,
      same_storage,
      "recompute {} [E4]: output {} must lie in {} bytes shared with output {} as in forward, "
      "got another storage; the function must do the same each time",
      name(),
      k,
      output.bytes,
      output.first);
  LETHE_CHECK(
      RecomputeError,
      !output.hash || *output.hash == hash_values(t),
      "recompute {} [E4]: output {} must have the bytes of forward, got others; the function "
      "must be deterministic and read nothing that changes",
      name(),
      k);
}

int64_t Region::release(size_t k, const std::string& event) {
  const std::lock_guard lock(mutex_);
  require_usable();
  LETHE_CHECK(
      RecomputeError,
      k < outputs_.size(),
      "recompute {} [E6]: a released output must be one of {}, got number {}; name an output "
      "that the region returns",
      name(),
      outputs_.size(),
      k);
  Output& output = outputs_[k];
  if (!output.released_at.empty()) return 0;
  std::string reason;
  if (!spec_.release_outputs) reason = "is kept (release_outputs = false)";
  if (output.changed()) reason = "was written to after the region returned it";
  if (!can_replay()) reason = "cannot be replayed any more";
  if (!reason.empty())
    record_->report.retained_outputs.push_back(fmt::format("out{}: {}", k, reason));
  const auto storage = output.storage.lock();
  if (!output.owned || !reason.empty() || !storage) return 0;
  output.release_asked = true;
  for (const Output& other : outputs_)
    if (other.first == output.first && !other.release_asked) return 0;
  for (size_t j = 0; j < outputs_.size(); ++j)
    if (outputs_[j].first == output.first) {
      outputs_[j].released_at = event;
      outputs_[j].restored.reset();
      record_->released[j] = true;
    }
  const int64_t freed = empty_storage(
      *storage,
      fmt::format("recompute {}.out{} [E3]: an output must not be read after its release, got a "
                  "reader after it was released at {}; move the release, or restore it before",
                  name(),
                  k,
                  event));
  if (is_tracing()) trace({.kind = TraceEvent::Kind::Release, .name = name(), .bytes = freed});
  return freed;
}

RegionRecord Region::record_now() {
  const std::lock_guard lock(mutex_);
  return *record_;
}

void Region::keep_choice(const Tensors& choice) {
  const std::lock_guard lock(mutex_);
  choices_.push_back(choice);
}

Tensors Region::next_choice(Scope& scope) {
  LETHE_CHECK(
      RecomputeError,
      scope.choice < choices_.size(),
      "recompute {} [E4]: a replay must ask for {} recorded choices as forward did, got more; "
      "the function must do the same each time",
      name(),
      choices_.size());
  return choices_[scope.choice++];
}

}  // namespace lethe
