#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/record_function.h>

// Which operators a region called, so that a replay that differs can say where (spec 3 1.10, E4).
// Regions note them while a trace lives.
namespace lethe {

/// Names of operators in the order of their calls, by number.
using Operators = std::vector<uint32_t>;

/// While it lives, operators that this thread calls are noted in `to` and in the lists of the
/// guards around it, not those that these call themselves; with nullptr none: what only forward
/// does. Operators that a thread calls outside of all guards cost it nothing.
class [[nodiscard]] NoteOperators final {
 public:
  explicit NoteOperators(Operators* to);
  ~NoteOperators();
  NoteOperators(const NoteOperators&) = delete;
  NoteOperators& operator=(const NoteOperators&) = delete;

 private:
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& call);
  static void end(const at::RecordFunction& call, at::ObserverContext* context);

  Operators* to_;
  NoteOperators* outer_;
  int depth_;
  at::CallbackHandle callback_ = at::INVALID_CALLBACK_HANDLE;  // of the outermost that notes
};

/// "operators differ from position 3 on: aten::mul in forward, aten::add in the replay"; empty
/// where nothing differs. complete: the replay reached its end, a shorter list differs.
std::string operator_difference(const Operators& forward, const Operators& replay, bool complete);

}  // namespace lethe
