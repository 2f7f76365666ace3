#include <algorithm>

#include <fmt/format.h>

#include "lethe/base/text_numbers.h"
#include "lethe/recompute/operator_log_impl.h"

namespace lethe {
namespace {

thread_local NoteOperators* innermost = nullptr;
thread_local int depth = 0;  // operators of this thread that run

TextNumbers& names() {
  static auto* const instance = new TextNumbers;  // never destroyed: threads may outlive main
  return *instance;
}

std::string name_at(const Operators& operators, size_t position) {
  return position < operators.size() ? names().text_of(operators[position]) : "none any more";
}

}  // namespace

NoteOperators::NoteOperators(Operators* to) : to_(to), outer_(innermost), depth_(depth) {
  innermost = this;
}

NoteOperators::~NoteOperators() {
  innermost = outer_;
}

std::unique_ptr<at::ObserverContext> OperatorWatch::begin(const at::RecordFunction& call) {
  const int outside = depth++;
  const bool noted = innermost != nullptr && innermost->to_ != nullptr;
  if (!noted || outside != innermost->depth_) return nullptr;
  const uint32_t name = names().number_of(call.name());
  for (const NoteOperators* notes = innermost; notes != nullptr && notes->to_ != nullptr;
       notes = notes->outer_)
    notes->to_->push_back(name);
  return nullptr;
}

void OperatorWatch::end(const at::RecordFunction&, at::ObserverContext*) {
  --depth;
}

OperatorWatch::OperatorWatch()
    : callback_(at::addGlobalCallback(
          at::RecordFunctionCallback(begin, end).scopes({at::RecordScope::FUNCTION}))) {}

OperatorWatch::~OperatorWatch() {
  at::removeCallback(callback_);
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
