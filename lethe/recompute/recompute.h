#pragma once

#include <any>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace at {
class Tensor;
}

// Recompute for any LibTorch code: a region forgets what it saved for backward and, where asked to,
// its outputs once their last forward reader is gone; backward runs it again when it reads one.
// Loss, gradients and random state keep every bit, because the autograd graph is the one that
// forward built. docs/design/recompute.md explains how.
//
//   lethe::Tape tape;                                   // one per forward pass
//   {
//     lethe::TapeScope scope(tape);
//     for (Block& block : blocks)
//       x = tape.run("mlp", [&](const at::Tensor& in) { return block.forward(in); }, x);
//     loss = loss_of(x);
//   }
//   loss.backward();                                    // replays by itself
//
// Errors are RecomputeError, name the region and carry the rule of spec 3 1.10, e.g. [E10].
namespace lethe {

using Tensors = std::vector<at::Tensor>;

/// What a region computes: a pure function of its inputs, of parameters (leaves that require a
/// gradient) and of constants. It runs in forward and again in backward, on whatever thread runs
/// them; it must outlive the graph. Inputs and parameters stay as they are until its backward is
/// done (E10). It may be left by an exception that is no std::exception (a replay stops early):
/// catch (...) must rethrow.
using RegionFn = std::function<Tensors(const Tensors&)>;
using TensorFn = std::function<at::Tensor(const at::Tensor&)>;

/// When a replay may end before the function returns.
enum class EarlyStop {
  On,         // as soon as everything that backward asked for is there
  Off,        // never: every replay runs to the end (a collective in the region)
  AfterMark,  // as On, once the function has called allow_early_stop()
};

/// What a second backward over the same graph (retain_graph) does.
enum class SecondBackward {
  ReplayAgain,  // replayed values are dropped after each backward
  KeepValues,   // they stay until a backward that does not retain the graph: one replay for a
                // backward that is split into several calls
  Refuse,       // RecomputeError [E7]
};

/// Calls of this name keep their results in a region.
struct KeptName {
  std::string name;
  bool allow_mutation = false;  // results may be written to before backward (R6.19)
};

/// One execution of a sub-graph. Designated initialisers: {.name = "L3.mb0.q", .random = false}.
struct RegionSpec {
  std::string name;  // "L{layer}.mb{micro-batch}.{sub-graph}": shown in errors, reports
  /// Later readers do not keep the outputs either. Not for every link of a chain: reading the last
  /// one would replay them all, and hold all of their values at once.
  bool release_outputs = false;
  bool random = true;  // false: draws no random numbers, no snapshot (5056 bytes each)
  EarlyStop stop = EarlyStop::On;
  std::vector<KeptName> keep;  // calls that a replay skips: kept_call.h
};

/// Settings of a tape.
struct TapeOptions {
  SecondBackward second_backward = SecondBackward::ReplayAgain;
  /// Costs time: hashes of all replayed values (E4), generators that move in regions with
  /// random = false (E5), captured tensors that are no parameters (CR3).
  bool checked = false;
};

/// What a region keeps of the calls of one name, and the time that they took in forward, which a
/// replay saves.
struct KeptReport {
  std::string name;
  int64_t calls = 0;
  int64_t bytes = 0;
  int64_t forward_ns = 0;
};

/// What one region saved. Bytes are those of distinct storages.
struct RegionReport {
  std::string name;
  int64_t slots = 0;           // saved tensors that a replay brings back
  int64_t handles = 0;         // saved references of later readers to the outputs
  int64_t forgettable = 0;     // bytes that would live until backward without the region
  int64_t released = 0;        // of these: gone now
  int64_t retained = 0;        // of these: alive, because somebody else holds them
  int64_t snapshot_bytes = 0;  // random state held for the replay, where this region took it
  std::vector<std::string> retained_outputs;  // "out0: shares the storage of an input"
  int64_t replays = 0;
  int64_t early_stops = 0;
  int64_t late_restores = 0;  // read before the hook of restore_at had run
  int64_t replay_ns = 0;
  std::vector<KeptReport> kept;  // one per name that was met
};

struct TapeState;

/// The record of one forward pass (one micro-batch; it may span layers). What backward needs is
/// held by the autograd graph, so a tape may die before backward. Moves between threads; several
/// threads may use one tape at a time. What belongs to the process must rest meanwhile: a thread
/// that draws random numbers in forward while another one replays a region with random = true draws
/// them from the state of that region (replays wait for each other), and default dtype, determinism
/// and precision must be set alike.
class Tape final {
 public:
  explicit Tape(TapeOptions options = {});
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  /// fn(inputs) as a region. Outputs are those of fn, in its graph. Inputs: every tensor that fn
  /// depends on and that is no parameter; undefined ones are allowed. With grad mode off:
  /// fn(inputs). Throws E10 when fn writes into an input, E5 (checked).
  Tensors run(const RegionSpec& spec, const RegionFn& fn, const Tensors& inputs);
  Tensors run(std::string_view name, const RegionFn& fn, const Tensors& inputs);
  /// One tensor in, one out.
  at::Tensor run(const RegionSpec& spec, const TensorFn& fn, const at::Tensor& input);
  at::Tensor run(std::string_view name, const TensorFn& fn, const at::Tensor& input);

  /// Names the moment, for later errors: "released at attn.q.end". Lets go of regions that nothing
  /// reads any more.
  void event(std::string_view name);

  /// Frees the bytes of an output now although tensors of it live on (owners outside autograd);
  /// reading one of them before its restore throws c10::Error with [E3]
  /// (making a new view of one: LibTorch's own error, the storage has no bytes). Returns the bytes
  /// freed now: 0 where it was released before, where another output shares the bytes and is not
  /// released, or where it must stay: the reason is in report(). Every later reader inside the
  /// region's tape gets a handle. Throws E6 for an unknown or cleared region, or an output that it
  /// does not have.
  int64_t release(std::string_view region, size_t output = 0);

  /// Throws [DC2] when the bytes of an output are still held: what a release point of a plan
  /// asserts for outputs that only autograd owns.
  void require_freed(std::string_view region, size_t output = 0) const;

  /// Replays the region now, if anything of it is missing and still wanted. Throws E6, E9.
  void restore(std::string_view region);

  /// Replays `regions` in this order when the gradient of `hook` arrives: prefetch only, a reader
  /// that comes earlier replays by itself (counted as late). Regions that nothing needs any more
  /// are left out. Throws E2 before anything is changed when hook requires no gradient, is an
  /// output of one of them, or does not depend on one; E6 for a region that never ran.
  void restore_at(const at::Tensor& hook, const std::vector<std::string>& regions);

  /// Drops everything that the regions of this tape hold; a backward that needs it throws E6.
  void clear();

  /// The regions of this tape in the order of their execution. Storages that several regions saved
  /// count for the first.
  [[nodiscard]] std::vector<RegionReport> report() const;

 private:
  friend class TapeScope;
  std::shared_ptr<TapeState> state_;
};

/// Tape::run on the innermost scope of this thread, for functions that nest regions and may run
/// when the tape is gone (a replay has none). Without a scope: as an ordinary checkpoint, whose
/// outputs stay.
Tensors run_region(const RegionSpec& spec, const RegionFn& fn, const Tensors& inputs);
Tensors run_region(std::string_view name, const RegionFn& fn, const Tensors& inputs);

/// While it lives, tensors that this thread saves for backward belong to the tape. Scopes nest;
/// leave them in reverse order, on the same thread. Without one, Tape::run opens one for itself,
/// and later readers keep the outputs. The first scope of a process installs the hooks of the
/// autograd engine. Throws ConfigError when saved-tensor hooks are disabled on this thread.
class [[nodiscard]] TapeScope final {
 public:
  explicit TapeScope(Tape& tape);
  ~TapeScope();
  TapeScope(const TapeScope&) = delete;
  TapeScope& operator=(const TapeScope&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Whether this thread runs a region again.
[[nodiscard]] bool in_replay();

/// f(), which is no part of the function: its operators are not compared when a traced replay
/// differs.
void off_record(const std::function<void()>& f);

/// off_record(f) unless in a replay: counters, logs, statistics.
void once(const std::function<void()>& f);

/// choose() in forward; in a replay what it returned then. For choices that a replay must not make
/// anew (expert and key indices): tensors without gradient, kept by the region. Calls of kept names
/// inside are not kept. Outside of regions: choose(). Throws E4 when the replay asks for more than
/// forward recorded.
Tensors recorded(const std::function<Tensors()>& choose);

/// See EarlyStop::AfterMark. Outside of replays: nothing.
void allow_early_stop();

/// State that functions read without taking it as an input (another generator, a precision phase):
/// every region takes `capture()` before forward and gives it to `install` around its replay.
/// Registered while it lives; not during a forward or backward pass of another thread.
class [[nodiscard]] ContextPart final {
 public:
  ContextPart(std::function<std::any()> capture, std::function<void(const std::any&)> install);
  ~ContextPart();
  ContextPart(const ContextPart&) = delete;
  ContextPart& operator=(const ContextPart&) = delete;

 private:
  int64_t id_;
};

/// What the engine holds in this process: zero of each once all graphs and tapes are gone.
struct RecomputeObjects {
  int64_t regions = 0;
  int64_t saved = 0;  // slots and handles that backward has not consumed
};

[[nodiscard]] RecomputeObjects recompute_objects();

}  // namespace lethe
