#pragma once

#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lethe/recompute/recompute.h"

// A small network whose gradients show every mistake of a replay: inputs with several readers,
// ATen's nodes, Lethe's own nodes, a user's torch::autograd::Function, dropout.
namespace lethe::test {

enum class NetMode {
  None,        // no tape
  ScopeOnly,   // a tape, no region
  Fine,        // attention and gated product of each layer are regions
  FineKeep,    // as Fine, outputs stay
  Full,        // each layer is a region; its output, the next layer's input, goes too
  FullKeep,    // as Full, outputs stay
  Nested,      // Full and Fine
  NestedKeep,  // FullKeep and FineKeep
};
inline constexpr NetMode kNetModes[] = {NetMode::ScopeOnly,
                                        NetMode::Fine,
                                        NetMode::FineKeep,
                                        NetMode::Full,
                                        NetMode::FullKeep,
                                        NetMode::Nested,
                                        NetMode::NestedKeep};

std::string name_of(NetMode mode);

struct NetBlock {
  at::Tensor qkv, out, gate, up, down, norm;
};

struct Net {
  std::vector<NetBlock> blocks;
  at::Tensor head;
  [[nodiscard]] std::vector<at::Tensor> parameters() const;
};

Net make_net(at::ScalarType dtype, int64_t layers, uint64_t seed = 7);

/// The hidden state behind the blocks, of x [T, kNetWidth]. `micro_batch` names the regions.
at::Tensor net_forward(
    const Net& net, const at::Tensor& x, NetMode mode, Tape& tape, int micro_batch = 0);

at::Tensor net_loss(const Net& net, const at::Tensor& hidden);

inline constexpr int64_t kNetWidth = 32;

/// A region whose outputs go too.
inline RegionSpec released(std::string name) {
  return {.name = std::move(name), .release_outputs = true};
}

struct NetStep {
  at::Tensor loss;
  std::vector<at::Tensor> grads;  // of the parameters, then of x
  at::Tensor random;              // state of the generator after the step
  std::vector<RegionReport> regions;
};

struct NetStepOptions {
  bool by_grad = false;  // autograd::grad instead of backward
  bool autocast = false;
  TapeOptions tape;
};

/// Forward and backward from a fixed random state.
NetStep net_step(const Net& net,
                 const at::Tensor& x,
                 NetMode mode,
                 const NetStepOptions& options = {});

/// Loss, gradients and random state have the same bytes.
void expect_same_step(const NetStep& a, const NetStep& b, const std::string& what);

int64_t sum_of(const std::vector<RegionReport>& regions, int64_t RegionReport::*field);

}  // namespace lethe::test
