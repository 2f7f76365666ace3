#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lethe/config/contract_table.h"
#include "lethe/config/model_config.h"

namespace lethe {

/// One hub tensor and the rows it shares with an internal tensor: a copy along dim 0,
///   internal[expert?][row : row + rows] = hub[hub_row : hub_row + rows]
/// For fc1 that is [w1; w3]; for the three alphas hub_row is 0, 1, 2 of hc_*_scale [3].
struct HubPart {
  std::string hub;         // e.g. "layers.3.ffn.experts.7.w1.weight"
  std::string checkpoint;  // Megatron checkpoint name, experts one by one: "...linear_fc1.weight7"
  std::vector<int64_t> shape;  // logical shape of the hub tensor (before FP4 packing)
  int64_t expert = -1;  // index into dim 0 of a stacked tensor; -1 = the tensor is not stacked
  int64_t row = 0;      // first row inside the internal (unstacked) tensor
  int64_t hub_row = 0;  // first row inside the hub tensor
  int64_t rows = 0;     // number of rows
};

/// One parameter or buffer as Lethe holds it in memory.
struct ParamSpec {
  std::string name;  // Megatron contract name; experts stacked: "...mlp.experts.fc1" [E,2I,D]
  std::vector<int64_t> shape;
  ParamKind kind = ParamKind::Param;
  ParamDtype dtype = ParamDtype::Float;
  bool fp32_kept = false;  // in memory: KF tensors and norm weights
  bool fp32_disk = false;  // on disk: KF tensors only
  bool stacked = false;    // dim 0 is the expert; tp then counts from dim 1
  QuantClass quant = QuantClass::KB;
  TpAxis tp = TpAxis::Replicated;
  int64_t matrix_rows = 0;  // rows of each independent matrix under Muon; 0 = never Muon
  int64_t head_rows = 0;    // the same per head; 0 = the tensor has no heads
  int64_t layer = -1;       // main layer, or num_layers + k for MTP block k; -1 = root
  int64_t mtp = -1;         // MTP block, -1 = none
  const ContractRow* row = nullptr;
  std::vector<HubPart> hub;

  [[nodiscard]] int64_t numel() const;
};

/// Every tensor of the model in contract order: root embed, layers ascending, root tail, MTP blocks
/// (6-checkpoints 3.3). `config` must be validated.
[[nodiscard]] std::vector<ParamSpec> contract(const ModelConfig& config);

/// Name spaces of 6-checkpoints 1.1. Internal = Megatron checkpoint names, experts one by one.
enum class Dialect : uint8_t { Internal, Hub, Transformers, Rollout };

/// Element type of a tensor in a bf16 export.
enum class DiskDtype : uint8_t { BF16, F32, I64 };

/// Rows that a tensor of some dialect shares with an internal tensor, as HubPart.
struct Piece {
  size_t param = 0;  // index into contract(config)
  int64_t expert = -1;
  int64_t row = 0;
  int64_t disk_row = 0;
  int64_t rows = 0;
};

/// One tensor of a checkpoint in some dialect, and the internal tensors that it fills.
struct DiskTensor {
  std::string name;
  std::vector<int64_t> shape;  // logical
  DiskDtype dtype = DiskDtype::BF16;
  QuantClass quant =
      QuantClass::KB;  // class in this dialect: wo_a is KB in Rollout (6-checkpoints 1.5)
  std::vector<Piece> pieces;

  [[nodiscard]] int64_t numel() const;
};

/// The inverse list: every tensor of a checkpoint in contract order. MTP blocks carry hub names in
/// the transformers and rollout dialects. `params` is contract(config).
[[nodiscard]] std::vector<DiskTensor> disk_tensors(const std::vector<ParamSpec>& params,
                                                   Dialect dialect);

/// disk_tensors(contract(config), Dialect::Hub).
[[nodiscard]] std::vector<DiskTensor> hub_tensors(const ModelConfig& config);

/// Trained elements plus router biases; token tables excluded (model spec 1.3).
struct ParamTotals {
  int64_t layers = 0;            // main layers
  int64_t top = 0;               // embedding, head, final norm, hc_head
  int64_t mtp = 0;               // all MTP blocks
  int64_t active_per_token = 0;  // embedding and head included, MTP not

  [[nodiscard]] int64_t without_mtp() const { return layers + top; }

  [[nodiscard]] int64_t total() const { return layers + top + mtp; }

  bool operator==(const ParamTotals&) const = default;
};

[[nodiscard]] ParamTotals param_totals(const ModelConfig& config);

}  // namespace lethe
