#include "recompute/nets.h"
#include "support/gradcheck.h"
#include "support/tensors.h"
#include <gtest/gtest.h>

#include <torch/csrc/autograd/engine.h>

#include "lethe/recompute/recompute.h"

// Other engines in the process, as Python's (spec 3 2.7 rule 9).
namespace lethe {
namespace {

namespace autograd = torch::autograd;

// What Python's engine is to us: it forwards to the base engine and supplies hooks of its own.
class ForeignEngine final : public autograd::Engine {
 public:
  autograd::variable_list execute(const autograd::edge_list& roots,
                                  const autograd::variable_list& inputs,
                                  bool keep_graph,
                                  bool create_graph,
                                  bool accumulate_grad,
                                  const autograd::edge_list& outputs) override {
    ++executions;
    return get_base_engine().execute(
        roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }

  std::unique_ptr<autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    ++asked_for_hooks;
    return nullptr;
  }

  int executions = 0, asked_for_hooks = 0;
};

ForeignEngine* foreign = nullptr;

autograd::Engine& foreign_engine() {
  return *foreign;
}

TEST(EngineChain, AnEngineThatIsInstalledLaterIsForwardedTo) {
  const at::Tensor x = test::random_leaf({4});
  const auto fn = [](const at::Tensor& t) { return t.exp().tanh(); };
  const auto gradient = [&] {
    Tape tape;
    const at::Tensor loss = tape.run(test::released("region"), fn, x).sum();
    const at::Tensor g = autograd::grad({loss}, {x})[0];
    EXPECT_EQ(tape.report()[0].replays, 1);
    return g;
  };
  const at::Tensor before = gradient();
  foreign = new ForeignEngine;  // as ours, never freed
  autograd::set_default_engine_stub(foreign_engine);
  test::expect_bitwise(gradient(), before, "gradient");
  EXPECT_EQ(foreign->executions, 1);
  EXPECT_EQ(foreign->asked_for_hooks, 0) << "inside of a scope the hooks are ours";
  (void)fn(x);
  EXPECT_EQ(foreign->asked_for_hooks, 2) << "outside they are those of the engine before";
}

}  // namespace
}  // namespace lethe
