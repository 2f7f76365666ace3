#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lethe/recompute/operator_log_impl.h"

namespace lethe {

class Region;
struct KeptCall;
struct TapeState;

/// A storage that a region got as an input, and whether the tensor was a leaf in forward.
struct ScopeInput {
  const c10::StorageImpl* storage;
  bool leaf;
};

/// What the thread runs: one per open tape scope, region in forward, region in replay; a stack.
struct Scope {
  Scope* parent = nullptr;
  TapeState* tape = nullptr;  // of a tape scope
  Region* region = nullptr;   // of a region
  bool replay = false;
  bool building = false;       // of a replay: for a backward inside of the region itself
  bool wants_outputs = false;  // of a replay: it must reach the end of the function
  bool mark_passed = false;    // of a replay: allow_early_stop() was called
  bool returned = false;       // of a replay: the function reached its end
  size_t position = 0;         // saved tensors so far
  size_t needed = 0;           // of a replay: slots to fill
  size_t captured = 0;         // of a replay: slots filled
  size_t choice = 0;           // of a replay: recorded() so far
  size_t call = 0;             // of a replay: op_call() of kept names so far
  KeptCall* kept = nullptr;    // in forward: inside of a call that is kept
  std::vector<ScopeInput> inputs;
  std::vector<c10::Storage> choices;  // storages of recorded tensors and kept results
  Operators operators;                // of a replay, where those of forward were noted
};

/// The innermost scope of this thread; nullptr: none.
Scope* current_scope();

/// Makes `scope` the innermost one, whatever was before, until the guard dies.
class [[nodiscard]] ScopeGuard final {
 public:
  explicit ScopeGuard(Scope* scope);
  ~ScopeGuard();
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  Scope* before_;
};

/// Ends a replay whose values are all there. No std::exception, so that handlers of those do not
/// take it.
struct StopReplay {
  const Region* region;
};

}  // namespace lethe
