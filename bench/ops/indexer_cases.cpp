#include "bench/ops/op_case.h"
#include "bench/support/step_work.h"

#include "lethe/ops/hadamard.h"
#include "lethe/ops/indexer.h"
#include "lethe/ops/indexer_kl.h"

namespace lethe::bench {
namespace {

constexpr int64_t kRatio = 4;
constexpr double kFloat = sizeof(float);

struct IndexTensors {
  at::Tensor q, k, w, cu_seqlens;
};

IndexTensors index_tensors(const Shapes& s, int64_t tokens) {
  return {.q = normal({tokens, s.index_heads, s.index_dim}),
          .k = normal({tokens / kRatio, s.index_dim}),
          .w = normal({tokens, s.index_heads}, 0.1),
          .cu_seqlens = one_document(tokens)};
}

at::Tensor call_indexer(const IndexTensors& t, const Shapes& s) {
  return std::get<1>(ops::lightning_indexer(
      {.q = t.q, .k = t.k, .w = t.w}, t.cu_seqlens, kRatio, {.topk = s.topk}));
}

Operands make_indexer(const Shapes& s, int64_t tokens) {
  const IndexTensors t = index_tensors(s, tokens);
  return {.leaves = {t.q, t.k, t.w},
          .forward = [t, s] { return std::vector<at::Tensor>{call_indexer(t, s)}; }};
}

struct TeacherTensors {
  at::Tensor q, kv, slots, indices, sink;
};

at::Tensor call_kl(const TeacherTensors& t, const IndexTensors& index, const Shapes& s) {
  const std::optional<at::Tensor> slots = t.slots, indices = t.indices, lse;
  const ops::AttentionInputs attention{.q = t.q,
                                       .kv = t.kv,
                                       .slots = slots,
                                       .indices = indices,
                                       .sink = t.sink,
                                       .cu_seqlens = index.cu_seqlens};
  const double scale = 1 / std::sqrt(static_cast<double>(s.head_dim));
  const ops::KlTeacher teacher{.attention = attention,
                               .lse = lse,
                               .rule = {.window = s.window, .ratio = kRatio, .scale = scale}};
  return std::get<3>(ops::indexer_kl(teacher, {.q = index.q, .k = index.k, .w = index.w}));
}

Operands make_kl(const Shapes& s, int64_t tokens) {
  const TeacherTensors t{.q = normal({tokens, s.heads, s.head_dim}),
                         .kv = normal({tokens, s.head_dim}),
                         .slots = normal({tokens / kRatio, s.head_dim}),
                         .indices = spread_slots(tokens, kRatio, s.topk),
                         .sink = normal({s.heads})};
  const IndexTensors index = index_tensors(s, tokens);
  return {.leaves = {},
          .forward = [t, index, s] { return std::vector<at::Tensor>{call_kl(t, index, s)}; }};
}

at::Tensor call_hadamard(const at::Tensor& x) {
  return ops::hadamard(x);
}

Operands make_hadamard(const Shapes& s, int64_t tokens) {
  const at::Tensor x = normal({tokens, s.index_heads, s.index_dim});
  return {.leaves = {x}, .forward = [x] { return std::vector<at::Tensor>{call_hadamard(x)}; }};
}

void add_indexer(OpCases& cases, const Shapes& s) {
  const int64_t tokens = s.attention_tokens;
  const auto t = static_cast<double>(tokens), h = static_cast<double>(s.index_heads),
             d = static_cast<double>(s.index_dim), k = static_cast<double>(s.topk);
  const double inputs = t * h * d + t / kRatio * d + t * h;
  const double chosen = slot_keys(tokens, kRatio, s.topk);
  cases.push_back({.op = "lightning_indexer",
                   .size = size_text(s, tokens),
                   .forward = {indexer_flops(h, d, slot_keys(tokens, kRatio, tokens)),
                               kFloat * (inputs + 2 * t * k)},
                   .backward = {6 * h * d * chosen, kFloat * (2 * inputs + 2 * t * k)},
                   .make = [s, tokens] { return make_indexer(s, tokens); }});
}

// Without a saved lse the loss also needs the mass of every visible key.
void add_kl(OpCases& cases, const Shapes& s) {
  const int64_t tokens = s.attention_tokens / 2;
  const auto t = static_cast<double>(tokens), h = static_cast<double>(s.heads),
             d = static_cast<double>(s.head_dim), ih = static_cast<double>(s.index_heads),
             id = static_cast<double>(s.index_dim);
  const double chosen = slot_keys(tokens, kRatio, s.topk);
  const double teacher = 2 * h * d * (chosen + window_keys(tokens, s.window));
  const double inputs = t * ih * id + t / kRatio * id + t * ih;
  cases.push_back({.op = "indexer_kl",
                   .size = size_text(s, tokens),
                   .forward = {teacher + 6 * ih * id * chosen,
                               kFloat * (t * h * d + 1.25 * t * d + 2 * inputs)},
                   .backward = {},
                   .make = [s, tokens] { return make_kl(s, tokens); }});
}

}  // namespace

void add_indexer_cases(OpCases& cases, const Shapes& s) {
  add_indexer(cases, s);
  add_kl(cases, s);
  const int64_t width = s.index_heads * s.index_dim, tokens = stream_tokens(s, 2 * width);
  const double floats = static_cast<double>(tokens * width);
  const double flops = floats * std::log2(static_cast<double>(s.index_dim));
  cases.push_back({.op = "hadamard",
                   .size = size_text(s, tokens),
                   .forward = {flops, kFloat * 2 * floats},
                   .backward = {flops, kFloat * 2 * floats},
                   .make = [s, tokens] { return make_hadamard(s, tokens); }});
}

}  // namespace lethe::bench
