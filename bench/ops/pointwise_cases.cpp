#include "bench/ops/op_case.h"

#include <ATen/ops/arange.h>

#include "lethe/ops/compressor.h"
#include "lethe/ops/norm_rope.h"
#include "lethe/ops/rms_norm.h"
#include "lethe/ops/rope.h"

namespace lethe::bench {
namespace {

constexpr double kFloat = sizeof(float), kEps = 1e-6;
constexpr int64_t kRatio = 4;

at::Tensor call_norm(const at::Tensor& x, const at::Tensor& weight) {
  return ops::rms_norm(x, weight, kEps);
}

Operands make_norm(const Shapes& s, int64_t tokens) {
  const at::Tensor x = normal({tokens, s.hidden}), weight = normal({s.hidden});
  return {.leaves = {x, weight},
          .forward = [x, weight] { return std::vector<at::Tensor>{call_norm(x, weight)}; }};
}

struct Rotation {
  at::Tensor x, positions, inv_freq;
};

Rotation rotation(const Shapes& s, int64_t tokens) {
  return {.x = normal({tokens, s.heads, s.head_dim}),
          .positions = at::arange(tokens, at::kLong),
          .inv_freq = ops::rope_inv_freq(s.rope_dims, 10000, std::nullopt)};
}

at::Tensor call_rope(const Rotation& t) {
  return ops::rope(t.x, t.positions, t.inv_freq, /*inverse=*/false);
}

// What the model does to q after its projection.
at::Tensor call_norm_rope(const Rotation& t) {
  return ops::norm_rope(t.x, std::nullopt, t.positions, t.inv_freq, kEps);
}

Operands make_rotation(const Shapes& s, int64_t tokens, at::Tensor (*call)(const Rotation&)) {
  const Rotation t = rotation(s, tokens);
  return {.leaves = {t.x}, .forward = [t, call] { return std::vector<at::Tensor>{call(t)}; }};
}

struct Pooling {
  at::Tensor kv, gate, ape, norm_weight, slot_positions, inv_freq, cu_seqlens;
};

at::Tensor call_compressor(const Pooling& t) {
  return ops::compressor({.kv = t.kv,
                          .gate = t.gate,
                          .ape = t.ape,
                          .norm_weight = t.norm_weight,
                          .slot_positions = t.slot_positions,
                          .inv_freq = t.inv_freq,
                          .cu_seqlens = t.cu_seqlens},
                         {.ratio = kRatio, .eps = kEps});
}

Operands make_compressor(const Shapes& s, int64_t tokens) {
  const Pooling t{.kv = normal({tokens, 2 * s.head_dim}),
                  .gate = normal({tokens, 2 * s.head_dim}),
                  .ape = normal({kRatio, 2 * s.head_dim}, 0.1),
                  .norm_weight = normal({s.head_dim}),
                  .slot_positions = at::arange(tokens / kRatio, at::kLong) * kRatio,
                  .inv_freq = ops::rope_inv_freq(s.rope_dims, 10000, std::nullopt),
                  .cu_seqlens = one_document(tokens)};
  return {.leaves = {t.kv, t.gate, t.ape, t.norm_weight},
          .forward = [t] { return std::vector<at::Tensor>{call_compressor(t)}; }};
}

void add_rotations(OpCases& cases, const Shapes& s) {
  const int64_t width = s.heads * s.head_dim, tokens = stream_tokens(s, 2 * width);
  const auto floats = static_cast<double>(tokens * width);
  const double rotated = static_cast<double>(tokens * s.heads * s.rope_dims);
  cases.push_back({.op = "rope",
                   .size = size_text(s, tokens),
                   .forward = {3 * rotated, kFloat * 2 * floats},
                   .backward = {3 * rotated, kFloat * 2 * floats},
                   .make = [s, tokens] { return make_rotation(s, tokens, call_rope); }});
  cases.push_back({.op = "norm_rope",
                   .size = size_text(s, tokens),
                   .forward = {3 * rotated + 4 * floats, kFloat * 2 * floats},
                   .backward = {3 * rotated + 8 * floats, kFloat * 3 * floats},
                   .make = [s, tokens] { return make_rotation(s, tokens, call_norm_rope); }});
}

}  // namespace

void add_pointwise_cases(OpCases& cases, const Shapes& s) {
  const int64_t tokens = stream_tokens(s, 2 * s.hidden);
  const auto floats = static_cast<double>(tokens * s.hidden);
  cases.push_back({.op = "rms_norm",
                   .size = size_text(s, tokens),
                   .forward = {4 * floats, kFloat * 2 * floats},
                   .backward = {8 * floats, kFloat * 3 * floats},
                   .make = [s, tokens] { return make_norm(s, tokens); }});
  add_rotations(cases, s);
  const int64_t pooled = stream_tokens(s, 4 * s.head_dim);
  const auto in = static_cast<double>(pooled * 4 * s.head_dim);
  const double out = in / (4 * kRatio);
  cases.push_back({.op = "compressor",
                   .size = size_text(s, pooled),
                   .forward = {4 * in, kFloat * (in + out)},
                   .backward = {8 * in, kFloat * (2 * in + out)},
                   .make = [s, pooled] { return make_compressor(s, pooled); }});
}

}  // namespace lethe::bench
