#include <atomic>

#include "lethe/base/error.h"
#include "lethe/core/byte_accounting.h"
#include "lethe/core/describe.h"
#include "lethe/recompute/region_impl.h"
#include "lethe/recompute/saved_ref_impl.h"
#include "lethe/recompute/tape_state_impl.h"

namespace lethe {
namespace {

thread_local Scope* innermost = nullptr;
std::atomic<int64_t> live_refs{0};

}  // namespace

Scope* current_scope() {
  return innermost;
}

ScopeGuard::ScopeGuard(Scope* scope) : before_(innermost) {
  innermost = scope;
}

ScopeGuard::~ScopeGuard() {
  innermost = before_;
}

int64_t live_saved_refs() {
  return live_refs;
}

SavedRef SavedRef::kept(const at::Tensor& t, std::shared_ptr<const std::string> reader) {
  recount_saved(t);
  SavedRef ref;
  ref.what_.emplace<Kept>(Kept{t.tensor_data(), version_of(t), std::move(reader)});
  return ref;
}

SavedRef SavedRef::slot(std::shared_ptr<Region> region, size_t slot) {
  SavedRef ref;
  ref.what_.emplace<Slot>(std::move(region), slot);
  return ref;
}

SavedRef SavedRef::view(std::shared_ptr<Region> region, size_t output, const at::Tensor& t) {
  SavedRef ref;
  ref.what_.emplace<View>(std::move(region), output, t);
  return ref;
}

at::Tensor SavedRef::get() const {
  return std::visit(
      [](const auto& what) -> at::Tensor {
        if constexpr (std::is_same_v<std::decay_t<decltype(what)>, std::monostate>)
          return {};
        else
          return what.get();
      },
      what_);
}

at::Tensor SavedRef::Kept::get() const {
  LETHE_CHECK(RecomputeError,
              version_of(tensor) == version,
              "recompute {} [E10]: a tensor of {} that was saved for backward must stay unchanged, "
              "got version {} where {} was saved; do not write into it, or clone it before",
              reader ? *reader : "tape",
              shape_text(tensor),
              version_of(tensor),
              version);
  return tensor;
}

SavedRef::Slot::Slot(std::shared_ptr<Region> r, size_t s) : region(std::move(r)), slot(s) {
  ++live_refs;
}

SavedRef::Slot& SavedRef::Slot::operator=(Slot&& other) noexcept {
  std::swap(region, other.region);
  std::swap(slot, other.slot);
  return *this;
}

SavedRef::Slot::~Slot() {
  if (!region) return;
  region->drop_slot(slot);
  --live_refs;
}

at::Tensor SavedRef::Slot::get() const {
  return region->take_slot(slot);
}

SavedRef::View::View(std::shared_ptr<Region> r, size_t k, const at::Tensor& t)
    : region(std::move(r)), output(k), meta(t) {
  region->add_view(output);
  ++live_refs;
}

SavedRef::View& SavedRef::View::operator=(View&& other) noexcept {
  std::swap(region, other.region);
  std::swap(output, other.output);
  std::swap(meta, other.meta);
  return *this;
}

SavedRef::View::~View() {
  if (!region) return;
  region->drop_view(output);
  --live_refs;
}

at::Tensor SavedRef::View::get() const {
  return region->read_output(output, meta);
}

SavedRef pack(const at::Tensor& t, Scope& scope) {
  if (scope.region != nullptr) return scope.region->pack(t, scope);
  return pack_above(t, &scope, nullptr);
}

SavedRef pack_above(const at::Tensor& t,
                    Scope* above,
                    const std::shared_ptr<const std::string>& reader) {
  if (!t.defined()) return {};
  for (Scope* s = above; s != nullptr; s = s->parent) {
    if (s->region != nullptr) return s->region->pack(t, *s);
    if (auto output = s->tape->find_output(t))
      return SavedRef::view(std::move(output->region), output->index, t);
  }
  return SavedRef::kept(t, reader);
}

}  // namespace lethe
