#include "bench/ops/op_case.h"
#include "bench/support/step_work.h"

#include "lethe/ops/sparse_attention.h"

namespace lethe::bench {
namespace {

constexpr int64_t kRatio = 4;

struct Tensors {
  at::Tensor q, kv, slots, indices, sink, cu_seqlens;
};

at::Tensor call(const Tensors& t, const Shapes& s) {
  const std::optional<at::Tensor> slots = t.slots, indices = t.indices;
  const ops::AttentionInputs inputs{.q = t.q,
                                    .kv = t.kv,
                                    .slots = slots,
                                    .indices = indices,
                                    .sink = t.sink,
                                    .cu_seqlens = t.cu_seqlens};
  const double scale = 1 / std::sqrt(static_cast<double>(s.head_dim));
  return std::get<0>(
      ops::sparse_attention(inputs, {.window = s.window, .ratio = kRatio, .scale = scale}));
}

Operands make(const Shapes& s, int64_t tokens) {
  const Tensors t{.q = normal({tokens, s.heads, s.head_dim}),
                  .kv = normal({tokens, s.head_dim}),
                  .slots = normal({tokens / kRatio, s.head_dim}),
                  .indices = spread_slots(tokens, kRatio, s.topk),
                  .sink = normal({s.heads}),
                  .cu_seqlens = one_document(tokens)};
  return {.leaves = {t.q, t.kv, t.slots, t.sink},
          .forward = [t, s] { return std::vector<at::Tensor>{call(t, s)}; }};
}

}  // namespace

void add_attention_cases(OpCases& cases, const Shapes& s) {
  const int64_t tokens = s.attention_tokens;
  const auto t = static_cast<double>(tokens), h = static_cast<double>(s.heads),
             d = static_cast<double>(s.head_dim);
  const double keys = window_keys(tokens, s.window) + slot_keys(tokens, kRatio, s.topk);
  const double rows = t + t / kRatio, bytes = sizeof(float);
  cases.push_back(
      {.op = "sparse_attention",
       .size = size_text(s, tokens),
       .forward = {attention_forward_flops(h, d, keys), bytes * d * (2 * t * h + rows)},
       .backward = {attention_backward_flops(h, d, keys), bytes * d * (4 * t * h + 2 * rows)},
       .make = [s, tokens] { return make(s, tokens); }});
}

}  // namespace lethe::bench
