#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "lethe/offload/swap_entry.h"
#include "lethe/offload/swap_stats.h"

namespace at {
class Tensor;
}

// The inputs of layers wait in a host tier from forward to backward (spec 5 6, --swap-layer-input).
// A layer takes part with two lines, the second one for the last layer too:
//
//   lethe::LayerInputSwap swap("mb0", {.num_layers = L}, backend);  // one per forward pass
//   for (int64_t i = 0; i < L; ++i) {
//     const at::Tensor input = x;
//     x = layers[i].forward(x);
//     swap.offer(i, input);   // behind the last operator of forward that reads the input
//     swap.trigger_at(i, x);  // backward of the layer brings it back
//   }
//   loss_of(x).backward();
//
// Loss and gradients keep every bit: no value is computed again, bytes return to the same tensors.
namespace lethe {

/// What is swapped and how far ahead it comes back.
struct SwapPolicy {
  int64_t num_layers = 0;  // main layers; the last one's input stays, higher numbers are MTP blocks
  int64_t prefetch_distance = 1;  // swapped inputs ahead of the layer in backward; 0 = none
  int64_t min_bytes = 4096;       // smaller storages stay
  bool checked = false;           // compares the bytes that come back (SwapEntry)
};

/// The record of one forward pass (one micro-batch): owns an entry for each layer whose input is
/// swapped. The hooks of trigger_at share the ownership, so the record may die before backward;
/// once graph and record are gone, so are copies and host blocks. Every member locks.
class LayerInputSwap final {
 public:
  static constexpr int64_t kAnyHolders = -1;

  /// name: of the micro-batch, shown in errors as "L3.NAME".
  LayerInputSwap(std::string name, const SwapPolicy& policy, std::shared_ptr<SwapBackend> backend);
  LayerInputSwap(const LayerInputSwap&) = delete;
  LayerInputSwap& operator=(const LayerInputSwap&) = delete;
  ~LayerInputSwap();

  /// Never swap the storage of this tensor: other layers or passes read it (tables, masks, ids).
  void share(const at::Tensor& t);

  /// Starts to copy the layer's input out, if it may be swapped; the answer says why not. Frees the
  /// inputs offered before it, waiting for their copies: the peak does not depend on timing. From
  /// here on nobody writes into the input, and no operator of forward reads it.
  /// holders: references to the storage that the caller knows of (tensors, saved tensors); more of
  /// them are somebody else's, and the input is refused as Shared.
  /// Offering the layer's input once more (a replay) does nothing.
  /// Throws OutOfArena when the host tier has no room; SwapError [copy], [unchanged] of an earlier
  /// entry; [once] for a second input of the same layer.
  SwapVerdict offer(int64_t layer, const at::Tensor& input, int64_t holders = kAnyHolders);

  /// step_backward(layer) when the gradient of the layer's output arrives. Before other hooks on
  /// the same tensor that read the input (Tape::restore_at). An output that requires no gradient
  /// has no backward: the input stays.
  void trigger_at(int64_t layer, const at::Tensor& output);

  /// Backward of the layer is next: its input is on the device on return, and those of the layers
  /// before it, prefetch_distance of them, are on their way. Again: nothing. Throws SwapError of
  /// the layer's entry.
  void step_backward(int64_t layer);

  /// Frees every input that was offered, waiting for the copies: where backward is not next.
  void settle();

  /// Ends all entries. What is in the host tier is lost.
  void drop();

  /// Of the layer's entry; nothing where there is none.
  [[nodiscard]] std::optional<SwapState> state_of(int64_t layer) const;

  [[nodiscard]] SwapStats stats() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace lethe
