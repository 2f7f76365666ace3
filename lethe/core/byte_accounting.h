#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "lethe/core/block_cache.h"

namespace at {
class Tensor;
}

namespace lethe {

/// What a CPU storage is for. A new storage gets the innermost ByteTag of the allocating thread, or
/// Temporaries where there is none. It becomes an activation when an operator saves it for its
/// backward (core/node.h), and a gradient when it arrives at a leaf (count_gradients_of).
enum class ByteCategory : uint8_t { Parameters, Gradients, Optimizer, Activations, Temporaries };
inline constexpr size_t kNumByteCategories = 5;

/// "parameters", "gradients", "optimizer", "activations", "temporaries".
const char* name_of(ByteCategory category);

/// Bytes requested by CPU tensor storages, exact to the byte: neither rounded up nor with our
/// header. Not counted: storages made before the installation or by at::from_blob, scratch of MKL
/// and oneDNN, std containers.
struct ByteReport {
  int64_t live = 0;  // allocated and not freed
  int64_t peak = 0;  // highest `live` since the last reset_peak()
  std::array<int64_t, kNumByteCategories> category_live{};  // sums to `live`
  std::array<int64_t, kNumByteCategories> category_peak{};  // each at its own moment
  std::array<int64_t, kNumByteCategories> at_peak{};        // at the moment of `peak`; sums to it

  [[nodiscard]] int64_t live_of(ByteCategory c) const {
    return category_live[static_cast<size_t>(c)];
  }

  [[nodiscard]] int64_t peak_of(ByteCategory c) const {
    return category_peak[static_cast<size_t>(c)];
  }
};

/// Makes ours the CPU allocator of LibTorch: it counts, keeps large blocks for the next request
/// (BlockCache) and forwards small ones to LibTorch's default allocator.
/// Call it first in main, before other threads run and before the first tensor (older tensors stay
/// valid and free themselves, uncounted). Calls after the first do nothing.
/// Throws ConfigError when an allocator of a higher priority is installed.
/// Source: spec 2-foundations 2.8, mechanism 2.
void install_byte_accounting();

/// Whether install_byte_accounting() has run.
[[nodiscard]] bool byte_accounting_installed();

/// The counters of all threads together, at one moment.
/// Throws ConfigError when accounting is not installed.
[[nodiscard]] ByteReport bytes();

/// Starts new peaks at the present live bytes.
void reset_peak();

/// The large blocks behind the tensors: what the process holds, rounded up, not what was requested.
[[nodiscard]] BlockCacheReport kept_blocks();

/// Gives kept blocks back to the system: before a measurement of resident memory, or when a process
/// goes on without tensors.
void give_kept_blocks_back();

/// Moves the tensor's storage into another category. Does nothing for storages that are not
/// counted.
void recount(const at::Tensor& tensor, ByteCategory category);

/// What the tensor's storage is counted as; nothing for storages that are not counted.
[[nodiscard]] std::optional<ByteCategory> category_of(const at::Tensor& tensor);

/// Recounts what is saved for a backward pass: temporaries become activations, the rest stays what
/// it is (parameters are saved too).
void recount_saved(const at::Tensor& tensor);

/// From now on a gradient that arrives at this leaf is recounted as Gradients, at once.
void count_gradients_of(const at::Tensor& leaf);

/// While it lives, live bytes stay at or below `bytes`: a storage that would exceed it is not made,
/// OutOfArena instead. For the whole process; limits nest, the innermost counts. Leave them in
/// reverse order. Throws ConfigError when accounting is not installed.
class [[nodiscard]] ByteLimit final {
 public:
  explicit ByteLimit(int64_t bytes);
  ~ByteLimit();
  ByteLimit(const ByteLimit&) = delete;
  ByteLimit& operator=(const ByteLimit&) = delete;

 private:
  int64_t outer_;
};

/// Storages that this thread allocates during the tag's life belong to `category`; tags nest, the
/// innermost counts. Freeing subtracts from the category of the allocation, on whatever thread.
/// A backward pass over CPU tensors runs on the thread that calls it, and so under its tag.
class [[nodiscard]] ByteTag final {
 public:
  explicit ByteTag(ByteCategory category);
  ~ByteTag();
  ByteTag(const ByteTag&) = delete;
  ByteTag& operator=(const ByteTag&) = delete;

 private:
  ByteCategory outer_;
};

}  // namespace lethe
