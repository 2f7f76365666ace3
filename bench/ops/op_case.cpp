#include "bench/ops/op_case.h"

#include <algorithm>

#include "bench/support/machine.h"

#include <ATen/ops/randn.h>

#include "lethe/base/random.h"

namespace lethe::bench {

Shapes flash_shapes() {
  return {.name = "V4-Flash",
          .hidden = 4096,
          .heads = 64,
          .head_dim = 512,
          .rope_dims = 64,
          .window = 128,
          .topk = 512,
          .index_heads = 64,
          .index_dim = 128,
          .streams = 4,
          .experts = 8,
          .experts_per_token = 2,
          .expert_width = 2048,
          .vocab = 16160,
          .router_experts = 256,
          .router_choice = 6,
          .attention_tokens = 4096,
          .dense_tokens = 512,
          .stream_bytes = beyond_caches(this_machine())};
}

Shapes benchmark_model_shapes() {
  return {.name = "bench model",
          .hidden = 512,
          .heads = 16,
          .head_dim = 128,
          .rope_dims = 32,
          .window = 128,
          .topk = 128,
          .index_heads = 16,
          .index_dim = 64,
          .streams = 4,
          .experts = 16,
          .experts_per_token = 4,
          .expert_width = 256,
          .vocab = 4096,
          .router_experts = 16,
          .router_choice = 4,
          .attention_tokens = 4096,
          .dense_tokens = 4096,
          .stream_bytes = beyond_caches(this_machine())};
}

int64_t stream_tokens(const Shapes& shapes, int64_t floats) {
  constexpr int64_t kUnit = 64;
  const int64_t bytes = floats * int64_t{sizeof(float)};
  const int64_t tokens = shapes.stream_bytes / bytes + 1;
  return std::max(kUnit, (tokens + kUnit - 1) / kUnit * kUnit);
}

std::string size_text(const Shapes& shapes, int64_t tokens) {
  return fmt::format("{} T={}", shapes.name, tokens);
}

at::Tensor one_document(int64_t tokens) {
  return at::tensor({int32_t{0}, static_cast<int32_t>(tokens)}, at::kInt);
}

at::Tensor spread_slots(int64_t tokens, int64_t ratio, int64_t k) {
  const int64_t columns = std::min(k, tokens / ratio);
  at::Tensor out = at::full({tokens, columns}, -1, at::kInt);
  auto* rows = out.data_ptr<int32_t>();
  Random random(0);
  for (int64_t t = 0; t < tokens; ++t, rows += columns) {
    const int64_t visible = std::min((t + 1) / ratio, tokens / ratio);
    const int64_t chosen = std::min(visible, columns);
    // One of every `visible / chosen` neighbours: distinct and ascending.
    for (int64_t i = 0; i < chosen; ++i) {
      const int64_t first = i * visible / chosen, end = (i + 1) * visible / chosen;
      rows[i] = static_cast<int32_t>(
          first + static_cast<int64_t>(random.uniform_below(static_cast<uint64_t>(end - first))));
    }
  }
  return out;
}

at::Tensor normal(at::IntArrayRef sizes, double scale) {
  return at::randn(sizes, at::kFloat).mul_(scale);
}

}  // namespace lethe::bench
