#include <atomic>
#include <mutex>

#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include "lethe/base/error.h"
#include "lethe/recompute/hook_engine_impl.h"
#include "lethe/recompute/operator_log_impl.h"
#include "lethe/recompute/saved_ref_impl.h"
#include "lethe/recompute/scope_impl.h"

namespace lethe {
namespace {

namespace autograd = torch::autograd;

class Hooks final : public autograd::SavedVariableHooks {
 public:
  void call_pack_hook(const at::Tensor& t) override { saved_ = pack(t, *current_scope()); }

  at::Tensor call_unpack_hook() override {
    const NoteOperators unnoted(nullptr);
    return saved_.get();
  }

 private:
  SavedRef saved_;
};

// Holds no state of its own: two in one chain (Python came between) do no harm.
class HookEngine final : public autograd::Engine {
 public:
  explicit HookEngine(autograd::Engine& next) : next_(next) {}

  autograd::variable_list execute(const autograd::edge_list& roots,
                                  const autograd::variable_list& inputs,
                                  bool keep_graph,
                                  bool create_graph,
                                  bool accumulate_grad,
                                  const autograd::edge_list& outputs) override {
    return next_.execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }

  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<autograd::GraphTask>& task,
      std::shared_ptr<autograd::Node> root,
      autograd::InputBuffer&& buffer) override {
    return next_.execute_with_graph_task(task, std::move(root), std::move(buffer));
  }

  std::unique_ptr<autograd::AnomalyMetadata> make_anomaly_metadata() override {
    return next_.make_anomaly_metadata();
  }

  std::unique_ptr<autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    if (current_scope() != nullptr) return std::make_unique<Hooks>();
    return next_.get_default_saved_variable_hooks();
  }

 private:
  autograd::Engine& next_;
};

std::atomic<autograd::Engine*> installed{nullptr};

autograd::Engine& our_engine() {
  return *installed.load(std::memory_order_acquire);
}

}  // namespace

void install_hook_engine() {
  LETHE_CHECK(
      ConfigError,
      at::SavedTensorDefaultHooks::is_enabled(),
      "recompute: saved-tensor hooks must be enabled where a tape scope opens, got disabled "
      "on this thread; open the scope outside of SavedTensorDefaultHooks::disable()");
  if (&autograd::Engine::get_default_engine() == installed.load(std::memory_order_acquire)) return;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  autograd::Engine& before = autograd::Engine::get_default_engine();
  if (&before == installed) return;
  // Never freed: workers may run when static objects go.
  installed.store(new HookEngine(before), std::memory_order_release);
  autograd::set_default_engine_stub(our_engine);
}

}  // namespace lethe
