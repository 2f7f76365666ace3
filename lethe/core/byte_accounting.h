#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace lethe {

/// What a CPU storage is for. It is decided when the storage is allocated, by the innermost ByteTag
/// of the allocating thread; Other where there is none (temporaries, inputs).
enum class ByteCategory : uint8_t { Parameters, Gradients, Optimizer, Activations, Other };
inline constexpr size_t kNumByteCategories = 5;

/// "parameters", "gradients", "optimizer", "activations", "other".
const char* name_of(ByteCategory category);

/// Bytes requested by CPU tensor storages, exact to the byte: neither rounded up nor with our
/// header. Not counted: storages made before the installation or by at::from_blob, scratch of MKL
/// and oneDNN, std containers.
struct ByteReport {
  int64_t live = 0;  // allocated and not freed
  int64_t peak = 0;  // highest `live` since the last reset_peak()
  std::array<int64_t, kNumByteCategories> category_live{};  // sums to `live`
  std::array<int64_t, kNumByteCategories> category_peak{};  // each at its own moment

  [[nodiscard]] int64_t live_of(ByteCategory c) const {
    return category_live[static_cast<size_t>(c)];
  }

  [[nodiscard]] int64_t peak_of(ByteCategory c) const {
    return category_peak[static_cast<size_t>(c)];
  }
};

/// Makes ours the CPU allocator of LibTorch: it forwards to LibTorch's default one and counts.
/// Call it first in main, before other threads run and before the first tensor (older tensors stay
/// valid and free themselves, uncounted). Calls after the first do nothing.
/// Throws ConfigError when an allocator of a higher priority is installed.
/// Source: spec 2-foundations 2.8, mechanism 2.
void install_byte_accounting();

/// Whether install_byte_accounting() has run.
[[nodiscard]] bool byte_accounting_installed();

/// The counters of all threads together. Exact when no other thread allocates meanwhile.
/// Throws ConfigError when accounting is not installed.
[[nodiscard]] ByteReport bytes();

/// Starts new peaks at the present live bytes. Not while other threads allocate.
void reset_peak();

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
