#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "lethe/base/text_numbers.h"
#include "lethe/recompute/operator_log_impl.h"

namespace lethe {
namespace {

thread_local NoteOperators* innermost = nullptr;
thread_local int depth = 0;  // operators of this thread that run, among those seen
thread_local bool listens = false;

TextNumbers& names() {
  static auto* const instance = new TextNumbers;  // never destroyed: threads may outlive main
  return *instance;
}

std::string name_at(const Operators& operators, size_t position) {
  return position < operators.size() ? names().text_of(operators[position]) : "none any more";
}

// The name's number. Names of registered operators stay where they are, so that their address
// finds the number without a lock; others may share an address, hence the comparison.
uint32_t number_of(const char* name) {
  struct Known {
    std::string text;
    uint32_t number = 0;
  };

  static thread_local std::array<Known, 256> known;
  Known& at = known[(reinterpret_cast<uintptr_t>(name) >> 4) % known.size()];
  if (at.number == 0 || at.text != name) at = {name, names().number_of(name)};
  return at.number;
}

}  // namespace

NoteOperators::NoteOperators(Operators* to) : to_(to), outer_(innermost), depth_(depth) {
  if (to != nullptr && !listens) {
    callback_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(begin, end).scopes({at::RecordScope::FUNCTION}));
    listens = true;
  }
  innermost = this;
}

NoteOperators::~NoteOperators() {
  innermost = outer_;
  if (callback_ == at::INVALID_CALLBACK_HANDLE) return;
  at::removeCallback(callback_);
  listens = false;
}

std::unique_ptr<at::ObserverContext> NoteOperators::begin(const at::RecordFunction& call) {
  const int outside = depth++;
  // LibTorch hands callbacks on to threads that it starts: those have no guard.
  const bool noted = innermost != nullptr && innermost->to_ != nullptr;
  if (!noted || outside != innermost->depth_) return nullptr;
  const uint32_t name = number_of(call.name());
  for (const NoteOperators* notes = innermost; notes != nullptr && notes->to_ != nullptr;
       notes = notes->outer_)
    notes->to_->push_back(name);
  return nullptr;
}

void NoteOperators::end(const at::RecordFunction&, at::ObserverContext*) {
  --depth;
}

std::string operator_difference(const Operators& forward, const Operators& replay, bool complete) {
  const auto [ours, theirs] =
      std::mismatch(forward.begin(), forward.end(), replay.begin(), replay.end());
  const bool differs = theirs != replay.end() || (complete && ours != forward.end());
  if (!differs) return {};
  const auto position = static_cast<size_t>(ours - forward.begin());
  return fmt::format("operators differ from position {} on: {} in forward, {} in the replay",
                     position,
                     name_at(forward, position),
                     name_at(replay, position));
}

}  // namespace lethe
