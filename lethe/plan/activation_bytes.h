#pragma once

#include <cstdint>

#include "lethe/base/documents.h"
#include "lethe/config/model_config.h"
#include "lethe/plan/layer_flow.h"

// Predicted bytes of the values of one layer, from shapes (spec 3 3.2). Pure functions.
namespace lethe {

/// The sizes of one micro-batch in one layer.
struct ActivationSizes {
  int64_t tokens = 0;              // T
  int64_t slots = 0;               // C: sum over documents of floor(length / ratio)
  int64_t chosen_slots = 0;        // K': columns of topk_idx; min(index_topk, C of a document)
  int64_t activation_bytes = 4;    // of an element: 4 float32, 2 bfloat16
  int64_t balanced_documents = 0;  // documents that the layer's balance loss counts; 0 without one
};

/// What decides the sizes of a micro-batch in every layer.
struct MicroBatchShape {
  Documents documents;
  bool balanced = false;              // there is a balance loss, which counts every document
  bool balances_hash_layers = false;  // of hash layers too
};

/// Of float32 activations, in a layer of this kind.
[[nodiscard]] ActivationSizes sizes_of(const ModelConfig& model,
                                       const MicroBatchShape& shape,
                                       const LayerKind& kind);

/// Bytes of an activation; 0 where the layer has none. Computing-type tensors (post, comb,
/// log-sum-exp, slot mass) and indices have 4 bytes an element.
[[nodiscard]] int64_t act_bytes(const ModelConfig& model, const ActivationSizes& sizes, ActId id);

/// Bytes of the first product of so many experts (gate and up), for every token.
[[nodiscard]] int64_t expert_product_bytes(const ModelConfig& model,
                                           const ActivationSizes& sizes,
                                           int64_t experts);

/// Bytes that operators inside the sub-graph save besides its inputs, outputs and choices: they are
/// never kept once it is a region. Of Layer: all that a layer saves but its input, its output and
/// its choices, whoever saves it; parameters and what belongs to the batch are nobody's.
[[nodiscard]] int64_t inside_bytes(const ModelConfig& model,
                                   const ActivationSizes& sizes,
                                   const OperatorFacts& facts,
                                   const LayerKind& kind,
                                   SubgraphId id);

}  // namespace lethe
