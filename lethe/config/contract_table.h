#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "lethe/config/model_config.h"

namespace lethe {

/// Raised by one whenever a name, shape or split of the table changes (6-checkpoints 4.1).
inline constexpr int kContractVersion = 1;

/// One dimension of a contract tensor, as a formula over ModelConfig and the layer's ratio.
enum class Dim : uint8_t {
  None,            // no such dimension
  One,             // 1
  Vocab,           // V
  Hidden,          // D
  Streams,         // n
  StreamsHidden,   // n*D
  MhcRows,         // (2+n)*n
  QRank,           // qr
  AllHeads,        // H*c
  HeadDim,         // c
  Heads,           // H
  GroupRank,       // go
  GroupRows,       // g*go
  GroupColumns,    // H*c/g
  Ratio,           // r
  SlotWidth,       // Coff*c, Coff = 2 for ratio 4, else 1
  IndexHeads,      // nI
  IndexAllHeads,   // nI*dI
  IndexDim,        // dI
  IndexSlotWidth,  // 2*dI
  Experts,         // E
  TopK,            // k
  Width,           // I
  TwoWidths,       // 2I: gate rows, then up rows
};

/// Size of a dimension in a layer of the given ratio.
[[nodiscard]] int64_t dim_size(Dim dim, const ModelConfig& config, int64_t ratio);

/// Where a row's tensors live; the order of the enumerators is the contract order.
enum class Scope : uint8_t { RootFirst, Layer, RootLast, MtpFirst, MtpLast };

/// Which layers have the tensor.
enum class When : uint8_t { Always, Compressed, Csa, Hash, Scored };

/// Param: trained. Buffer: never in an optimizer (model spec 9.3).
enum class ParamKind : uint8_t { Param, Buffer };

/// Element class in memory: floating point, or 32-bit integer.
enum class ParamDtype : uint8_t { Float, Int };

/// Quantisation class (6-checkpoints 1.1): FP8 128x128, packed FP4 1x32, keep bf16, keep fp32,
/// integer.
enum class QuantClass : uint8_t { Q8, Q4, KB, KF, KI };

/// Tensor-parallel split of one (unstacked) tensor. GateUp: dim 0 with partition stride 2, each of
/// the two halves split on its own (6-checkpoints 1.7).
enum class TpAxis : uint8_t { Replicated, Dim0, Dim1, GateUp };

/// How the hub's tensors fill the internal one.
enum class Packing : uint8_t {
  Whole,      // one hub tensor, the same elements
  GateUp,     // two hub tensors: rows [0,I) gate (w1), rows [I,2I) up (w3)
  AlphaPre,   // element 0 of the hub's [3]
  AlphaPost,  // element 1
  AlphaRes,   // element 2
};

/// One row of the contract table (6-checkpoints 1.2-1.5, model spec 13.1): a family of tensors.
/// Names of Layer and Mtp rows are suffixes; "{e}" stands for the global expert id. `hub_up` is the
/// second hub tensor of Packing::GateUp; transformers_up and rollout_up likewise. MTP-only rows
/// have hub names in the transformers and rollout columns too (6-checkpoints 1.4).
struct ContractRow {
  Scope scope;
  When when;
  Packing packing;
  ParamKind kind;
  QuantClass quant;
  TpAxis tp;
  bool fp32_memory;  // fp32 in memory whatever the model's dtype (model spec 12.1)
  bool per_expert;   // one tensor per expert in checkpoints; stacked along a new dim 0 in memory
  Dim matrix_rows;   // rows of each logically independent matrix under Muon (model spec 12): the
                     // tensor is a stack of equal matrices; None = never Muon
  Dim head_rows;     // the same where heads count as independent; None = the tensor has no heads
  std::array<Dim, 2> shape;  // of the internal tensor, without the expert dimension
  std::string_view internal;
  std::string_view stacked;  // internal suffix of the stacked tensor; empty unless per_expert
  std::string_view hub, hub_up;
  std::string_view transformers, transformers_up;
  std::string_view rollout, rollout_up;

  [[nodiscard]] ParamDtype dtype() const {
    return quant == QuantClass::KI ? ParamDtype::Int : ParamDtype::Float;
  }

  /// fp32 on disk in every profile, and never through bf16 on the way in.
  [[nodiscard]] bool fp32_disk() const { return quant == QuantClass::KF; }
};

/// The table, in contract order. Nothing else in Lethe lists weight names.
[[nodiscard]] std::span<const ContractRow> contract_table();

/// Does a layer of this ratio and router kind have the row's tensors?
[[nodiscard]] bool applies(When when, int64_t ratio, bool hash_layer);

}  // namespace lethe
