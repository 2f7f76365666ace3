#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace lethe::bench {

/// The sizes of a model that its operators see.
struct Shapes {
  std::string name;
  int64_t hidden, heads, head_dim, rope_dims, window, topk;
  int64_t index_heads, index_dim, streams, experts, experts_per_token, expert_width, vocab;
  int64_t router_experts, router_choice;   // of the gate, whatever part of the experts is there
  int64_t attention_tokens, dense_tokens;  // tokens of what costs much a token
  int64_t stream_bytes;                    // traffic of what memory bounds
};

/// DeepSeek-V4-Flash, with 8 of its 256 experts (2 a token) and 1/8 of its vocabulary, whose
/// weights would not fit beside their gradients; what a row of either costs is the same. The gate
/// has its 256 experts.
[[nodiscard]] Shapes flash_shapes();

/// bench/peers/model.json.
[[nodiscard]] Shapes benchmark_model_shapes();

/// What an operator must do: FLOPs of its formula and compulsory bytes (operands once, results
/// once).
struct OpWork {
  double flops = 0, bytes = 0;
};

/// Tensors of one case, and the call.
struct Operands {
  std::vector<at::Tensor> leaves;                    // what gets a gradient
  std::function<std::vector<at::Tensor>()> forward;  // the differentiable results
};

/// One operator at one size.
struct OpCase {
  std::string op;            // as operators_with_kernels() names it
  std::string size;          // "V4-Flash T=4096"
  OpWork forward, backward;  // backward: without forward's; no FLOPs = not run
  std::function<Operands()> make;
};

using OpCases = std::vector<OpCase>;

// One function per family of operators, each in a file of its own.
void add_attention_cases(OpCases& cases, const Shapes& shapes);
void add_indexer_cases(OpCases& cases, const Shapes& shapes);
void add_stream_cases(OpCases& cases, const Shapes& shapes);
void add_pointwise_cases(OpCases& cases, const Shapes& shapes);
void add_expert_cases(OpCases& cases, const Shapes& shapes);
void add_head_cases(OpCases& cases, const Shapes& shapes);
void add_linear_cases(OpCases& cases, const Shapes& shapes);

/// Tokens at which `floats` a token make shapes.stream_bytes.
[[nodiscard]] int64_t stream_tokens(const Shapes& shapes, int64_t floats);

/// "V4-Flash T=4096".
[[nodiscard]] std::string size_text(const Shapes& shapes, int64_t tokens);

/// int32 [2]: one document.
[[nodiscard]] at::Tensor one_document(int64_t tokens);

/// int32 [T, min(k, T/ratio)]: distinct visible slots of every query, ascending, then -1.
[[nodiscard]] at::Tensor spread_slots(int64_t tokens, int64_t ratio, int64_t k);

/// float32, standard normal times `scale`.
[[nodiscard]] at::Tensor normal(at::IntArrayRef sizes, double scale = 1);

}  // namespace lethe::bench
