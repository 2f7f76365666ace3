#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/TensorImpl.h>
#include <torch/csrc/autograd/function.h>

#include "lethe/plan/recompute_plan.h"
#include "lethe/recompute/operator_log_impl.h"
#include "lethe/recompute/recompute.h"
#include "lethe/recompute/replay_context_impl.h"
#include "lethe/recompute/saved_ref_impl.h"

namespace lethe {

/// A storage that a region saved or returned, for reports.
struct SavedStorage {
  WeakStorage storage;
  int64_t bytes = 0;
};

/// A call whose results stay (kept_call.h).
struct KeptCall {
  struct Argument {
    size_t position, input;  // of the saved tensor; of the input whose storage it shows
  };

  std::string name;
  const Tensors* inputs;          // while it runs
  std::vector<TensorMeta> metas;  // of the defined inputs
  size_t packs = 0;
  std::vector<Argument> arguments;  // slots that show an input
  Tensors outputs;                  // share the version counters of those that forward returned
  std::vector<uint32_t> versions;
  std::vector<bool> requires_grad;
};

/// What outlives a region for Tape::report().
struct RegionRecord {
  RegionReport report;
  std::vector<SavedStorage> inside;   // of slots
  std::vector<SavedStorage> outputs;  // empty reference: not ours to free
  std::vector<SavedStorage> kept;     // of calls, by kept_row a part of report.kept
  std::vector<size_t> kept_row;
  std::vector<bool> released;    // per output, explicitly
  std::vector<int64_t> handles;  // per output
};

/// One execution of a sub-graph (spec 3 1.2). Owned by the saved references to it, and by the tape
/// as long as a storage of its outputs lives. Every public member locks; the lock is held while it
/// replays, so a second reader waits, and is taken in the order of dependencies (spec 3 2.7 rule
/// 2).
class Region final : public std::enable_shared_from_this<Region> {
 public:
  enum class State { Building, Built, Replaying, Restored, Cleared, Failed };

  struct Output {
    explicit Output(const at::Tensor& t);
    /// Whether somebody has written into it since the region returned it.
    [[nodiscard]] bool changed() const;

    TensorMeta meta;
    c10::DispatchKeySet keys;
    WeakStorage storage;
    std::weak_ptr<torch::autograd::Node> node;  // that produced it
    c10::VariableVersion version;               // outlives the tensor
    uint32_t built_version;
    int64_t bytes;               // of the storage
    size_t first = 0;            // the first output that has the same storage
    bool owned = false;          // nothing but the outputs has the storage
    bool release_asked = false;  // explicitly; done when all outputs of the storage are asked for
    std::string released_at;     // the event; empty: not released
    int64_t views = 0;           // saved references
    at::Tensor restored;
    std::optional<uint64_t> hash;
  };

  Region(const RegionSpec& spec, const TapeOptions& options, RegionFn fn, ReplayContext context);
  ~Region();

  // Forward.
  Tensors build(const Tensors& inputs, Scope* parent);
  SavedRef pack(const at::Tensor& t, Scope& scope);

  [[nodiscard]] const std::vector<Output>& outputs() const { return outputs_; }

  [[nodiscard]] const std::string& name() const { return spec_.name; }

  [[nodiscard]] const std::shared_ptr<RegionRecord>& record() const { return record_; }

  RegionRecord record_now();

  [[nodiscard]] bool releases_outputs() const { return spec_.release_outputs; }

  bool can_replay();

  // Choices of recorded(): kept in forward, handed out in replay.
  void keep_choice(const Tensors& choice);
  Tensors next_choice(Scope& scope);

  // Calls whose results stay.
  [[nodiscard]] const KeptName* kept_name(std::string_view name) const;  // nullptr: not kept
  Tensors keep_call(std::string_view name, const RegionFn& fn, const Tensors& in, Scope& scope);
  Tensors skip_call(std::string_view name, const Tensors& inputs, Scope& scope);

  // References.
  at::Tensor take_slot(size_t slot);
  void drop_slot(size_t slot);
  at::Tensor read_output(size_t output, const TensorMeta& meta);
  void add_view(size_t output);
  void drop_view(size_t output);

  // The tape's calls.
  void restore();
  void expect_prefetch();
  void prefetch();
  int64_t release(size_t output, const std::string& event);
  void clear();

  /// The storage of the output is gone: tells a trace, where somebody would still read it.
  void trace_release(size_t output);

  /// Throws StopReplay when this replay has all it is for.
  void stop_if_done(const Scope& scope) const;

 private:
  enum class Role { Slot, Above, Parameter, Kept };

  /// A saved tensor of forward, by position.
  struct Saved {
    Role role;
    size_t slot;
    TensorMeta meta;
    WeakStorage storage;
    uint32_t version;
    std::optional<uint64_t> hash;
  };

  static constexpr int kNever = -2;  // -1: outside of any backward

  struct SlotValue {
    at::Tensor tensor;
    uint32_t version = 0;
    int taken_by = kNever;  // graph task
    bool wanted = true;     // a saved reference lives
  };

  struct Input {
    SavedRef saved;
    bool defined, requires_grad, leaf;
  };

  /// A leaf that the outputs depend on and that is no input, as forward saw it.
  struct Parameter {
    at::Tensor tensor;
    WeakStorage storage;
    uint32_t version;
  };

  Role role_of(const at::Tensor& t, const Scope& scope) const;
  SavedRef pack_forward(const at::Tensor& t, Scope& scope);
  SavedRef pack_slot(const at::Tensor& t);
  SavedRef pack_kept(const at::Tensor& t, KeptCall& call);
  void fill_slot(size_t slot, const at::Tensor& t, Scope& scope);
  void fill_argument(const KeptCall::Argument& argument, const Tensors& inputs, Scope& scope);
  void check_keepable(const KeptCall& call, const Tensors& out, const Scope& scope) const;
  void note_kept(const std::string& name, const at::Tensor& t, int64_t calls, int64_t forward_ns);
  void capture(const at::Tensor& t, Scope& scope);
  void check_capture(const Saved& saved, size_t position, const at::Tensor& t) const;
  void take_inputs(const Tensors& inputs, Scope& scope);
  Tensors call_forward(const Tensors& inputs, Scope& scope);
  void describe_outputs(const Tensors& out, const Scope& scope);
  void note_storages();
  void note_parameters(const Tensors& out, const Tensors& inputs, uint64_t first_node);
  void require_parameters() const;

  void require_usable() const;
  void require_replayable() const;
  void replay(Trigger::Kind cause);
  void restore_by(Trigger::Kind cause);
  void run_replay(Scope& scope);
  Tensors call_again(const Tensors& inputs, Scope& scope);
  [[nodiscard]] std::string with_difference(const char* error, const Scope& scope) const;
  Tensors replay_inputs(Scope& scope);
  void take_outputs(const Tensors& out);
  void check_output(size_t k, const Tensors& out) const;
  [[nodiscard]] bool wants(const Output& output) const;
  [[nodiscard]] size_t missing_slots() const;
  [[nodiscard]] bool wants_outputs() const;
  void end_replay(bool building);
  [[nodiscard]] int64_t given_up_bytes() const;
  [[nodiscard]] int64_t restored_bytes() const;
  void hold_live_outputs();
  void fail_with(const std::string& text);
  void drop_values();
  void give_up_inputs();

  const RegionSpec spec_;
  const TapeOptions options_;
  std::shared_ptr<const std::string> name_;
  std::shared_ptr<RegionRecord> record_;
  std::recursive_mutex mutex_;
  State state_ = State::Building;
  std::shared_ptr<const RegionFn> fn_;  // whoever runs it holds it too
  std::optional<ReplayContext> context_;
  std::vector<Input> inputs_;
  bool inputs_given_up_ = false;
  std::vector<Parameter> parameters_;
  std::vector<Saved> saved_;
  std::vector<SlotValue> slots_;
  std::vector<Output> outputs_;
  std::vector<Tensors> choices_;
  std::deque<KeptCall> calls_;
  Operators operators_;  // of forward; empty: not traced
  bool prefetch_due_ = false;
  std::string failure_;
};

/// Regions that live in this process.
int64_t live_regions();

}  // namespace lethe
