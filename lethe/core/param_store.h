#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace at {
class Tensor;
}

namespace lethe {

/// Where and in which type parameters live.
struct ParamPlacement {
  enum class Float { Fp32, Fp64, Bf16 };
  enum class Device { Cpu, Cuda, Meta };  // Meta: shapes only, no bytes
  Float float_type = Float::Fp32;
  Device device = Device::Cpu;
};

/// One row of the contract table as the store needs it (the table itself is data in
/// config/contract).
struct ParamRow {
  std::string name;  // contract name, e.g. "decoder.layers.0.input_layernorm.weight"
  std::vector<int64_t> shape;
  bool is_integer = false;  // int32 (hash tables); never cast, never trained
  bool fp32_kept = false;   // never cast below float32
  bool trainable = true;    // false: a buffer (router bias, hash table)
  int64_t matrix_rows = 0;  // rows of each independent matrix under Muon; 0 = AdamW (model spec 12)
  int64_t head_rows = 0;    // the same where heads count as independent; 0 = has no heads
};

class ParamScope;

/// All parameters and buffers of a model by contract name; owns the tensors.
/// Modules claim theirs through scopes; a name or shape that no row has is refused, and so is a row
/// that no module claims. Not thread-safe while claiming; read-only afterwards.
class ParamStore {
 public:
  /// Allocates every row, uninitialised (an importer proves coverage, init writes all).
  /// Trainable rows require a gradient; those of bfloat16 get it in float32 where LibTorch can
  /// (core/leaf_gradient.h).
  ParamStore(std::vector<ParamRow> rows, ParamPlacement placement);
  ~ParamStore();
  ParamStore(const ParamStore&) = delete;
  ParamStore& operator=(const ParamStore&) = delete;

  [[nodiscard]] size_t size() const;
  [[nodiscard]] const ParamRow& row(size_t i) const;
  [[nodiscard]] const at::Tensor& value(size_t i) const;
  /// CheckpointError when no row has the name.
  [[nodiscard]] const at::Tensor& value(std::string_view name) const;
  [[nodiscard]] bool has(std::string_view name) const;

  /// Elements over all rows but the integer ones (buffers such as the router bias count).
  [[nodiscard]] int64_t total_elements() const;

  [[nodiscard]] ParamScope root();

  /// InternalError naming the first row that no module claimed.
  void expect_all_claimed() const;

  /// Sets requires_grad of every trainable float row to wanted(row).
  void set_trained(const std::function<bool(const ParamRow&)>& wanted);

 private:
  friend class ParamScope;
  const at::Tensor& claim(const std::string& name, const std::vector<int64_t>& shape);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A prefix of contract names, handed to the module that owns the tensors below it.
class ParamScope {
 public:
  /// Claims `<prefix><suffix>`; the shape must be the contract's.
  [[nodiscard]] at::Tensor add(std::string_view suffix, const std::vector<int64_t>& shape) const;

  /// `<prefix><segment>.`
  [[nodiscard]] ParamScope sub(std::string_view segment) const;

 private:
  friend class ParamStore;

  ParamScope(ParamStore& store, std::string prefix) : store_(&store), prefix_(std::move(prefix)) {}

  ParamStore* store_;
  std::string prefix_;
};

}  // namespace lethe
