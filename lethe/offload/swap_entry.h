#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "lethe/offload/swap_backend.h"

namespace at {
class Tensor;
}

namespace lethe {

/// Where the bytes of an entry are (spec 5 6.2).
enum class SwapState : uint8_t {
  Device,     // on the device, nothing under way
  D2hIssued,  // on the device, being copied to the host tier
  Host,       // in the host tier only
  H2dIssued,  // being copied back
  Restored,   // on the device again
  Removed,    // nothing is owned any more
  Failed,
};

/// "Device", "D2H_Issued", ...: the names of the specification.
[[nodiscard]] std::string_view state_text(SwapState state);

/// What a restore did.
struct SwapRestore {
  enum class Kind : uint8_t {
    Nothing,    // the bytes were on the device
    Cancelled,  // so they were, and the copy to the host tier is given up
    CopiedIn,
    Dropped,  // nobody has the tensor any more; the entry is Removed
  };
  Kind kind = Kind::Nothing;
  bool prefetched = false;  // CopiedIn: the copy had ended when it was asked for
  int64_t wait_ns = 0;      // that this thread waited for a copy
};

/// One storage on its way to the host tier and back. It empties and refills the storage under its
/// tensors: their objects and version counters stay, whoever saved them reads the same bytes in the
/// same places. A value that belongs to the record of its layer and micro-batch; moved, never
/// copied; one thread at a time. While a copy out runs the entry keeps the storage alive,
/// afterwards it does not. The destructor waits for a copy under way and gives the host block back;
/// bytes that are in the host tier then are lost, and reading the tensor says so.
///
/// A call in a state that does not allow it is SwapError [state], with the entry's name:
///   issue_out  Device                            release  D2hIssued
///   cancel     D2hIssued                         remove   Device, Restored
///   prefetch, restore  all but Removed, Failed   fail     every one
class SwapEntry final {
 public:
  /// tensor: covers its whole storage (swappable.h). name: "L3.mb0". checked: compares the bytes
  /// that come back with those that went, SwapError [checksum].
  SwapEntry(std::string name,
            const at::Tensor& tensor,
            std::shared_ptr<SwapBackend> backend,
            bool checked = false);
  SwapEntry(SwapEntry&&) noexcept;
  SwapEntry& operator=(SwapEntry&&) noexcept;
  ~SwapEntry();

  /// Starts the copy to the host tier. From here on to the release nobody may write into the
  /// tensor. situation: appended to the name in an error of the budget. Throws what
  /// SwapBackend::alloc_host throws; the entry is then as before.
  void issue_out(std::string_view situation = {});

  /// Waits for the copy out and frees the device's bytes: behind the last reader of forward.
  /// Returns the ns waited. SwapError [copy] when the copy failed, [unchanged] when somebody wrote
  /// into the tensor or took its bytes: the entry is Failed and the tensor keeps what it has.
  int64_t release();

  /// Gives up the copy out: the device's bytes stay. Returns the ns waited, because the block is in
  /// use until the copy ends.
  int64_t cancel();

  /// Starts the copy back where the bytes are in the host tier only; returns whether it did. Throws
  /// what allocating on the device throws; the entry is then as before.
  bool prefetch();

  /// The bytes are on the device on return. Before the release it cancels: a copy back never races
  /// the copy out. SwapError [copy], [checksum]: they are lost, the entry is Failed.
  SwapRestore restore();

  /// Ends an entry whose bytes are on the device.
  void remove();

  /// Ends it in every state; `reason` is shown by later calls.
  void fail(const std::string& reason);

  [[nodiscard]] SwapState state() const;
  [[nodiscard]] const std::string& name() const;
  [[nodiscard]] int64_t bytes() const;  // of the storage
  /// Whether this is a tensor of the entry's storage.
  [[nodiscard]] bool owns(const at::Tensor& t) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lethe
