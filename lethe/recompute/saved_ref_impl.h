#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "lethe/recompute/scope_impl.h"
#include "lethe/recompute/tensor_meta_impl.h"

namespace lethe {

/// What stands for a saved tensor: the tensor itself, a slot that a replay of its region fills, or
/// a view of an output that a replay of its region brings back. Dropping it tells the region.
class SavedRef final {
 public:
  SavedRef() = default;  // an undefined tensor
  /// `reader`: region whose inputs or parameters it belongs to, for errors; may be null.
  static SavedRef kept(const at::Tensor& t, std::shared_ptr<const std::string> reader);
  static SavedRef slot(std::shared_ptr<Region> region, size_t slot);
  static SavedRef view(std::shared_ptr<Region> region, size_t output, const at::Tensor& t);
  SavedRef(SavedRef&&) noexcept = default;
  SavedRef& operator=(SavedRef&&) noexcept = default;
  ~SavedRef() = default;

  /// The tensor, without autograd; replays what it takes. A slot is handed over and then empty.
  [[nodiscard]] at::Tensor get() const;

 private:
  struct Kept {
    at::Tensor tensor;
    uint32_t version;
    std::shared_ptr<const std::string> reader;
    [[nodiscard]] at::Tensor get() const;
  };

  struct Slot {
    std::shared_ptr<Region> region;
    size_t slot;
    Slot(std::shared_ptr<Region> r, size_t s);
    Slot(Slot&&) noexcept = default;
    Slot& operator=(Slot&&) noexcept;
    ~Slot();
    [[nodiscard]] at::Tensor get() const;
  };

  struct View {
    std::shared_ptr<Region> region;
    size_t output;
    TensorMeta meta;
    View(std::shared_ptr<Region> r, size_t k, const at::Tensor& t);
    View(View&&) noexcept = default;
    View& operator=(View&&) noexcept;
    ~View();
    [[nodiscard]] at::Tensor get() const;
  };

  std::variant<std::monostate, Kept, Slot, View> what_;
};

/// The decision of spec 3 2.4 for a tensor that is saved under `scope`.
SavedRef pack(const at::Tensor& t, Scope& scope);

/// The same for a region's own input or parameter, which belongs to the level above it.
SavedRef pack_above(const at::Tensor& t,
                    Scope* above,
                    const std::shared_ptr<const std::string>& reader);

/// Slots and views that live in this process.
int64_t live_saved_refs();

}  // namespace lethe
