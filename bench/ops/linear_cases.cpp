#include "bench/ops/op_case.h"

#include "lethe/ops/grouped_linear.h"
#include "lethe/ops/linear.h"

namespace lethe::bench {
namespace {

constexpr double kFloat = sizeof(float);
constexpr int64_t kGroups = 8;  // of V4-Flash

struct Layer {
  at::Tensor x, weight;
};

// The queries of the indexer, from the layer's input.
Operands make_linear(const Shapes& s, int64_t tokens) {
  const Layer t{.x = normal({tokens, s.hidden}),
                .weight = normal({s.index_heads * s.index_dim, s.hidden}, 0.02)};
  return {.leaves = {t.x, t.weight},
          .forward = [t] { return std::vector<at::Tensor>{ops::linear(t.x, t.weight)}; }};
}

// The heads' outputs on their way down, twice as wide as the layer.
Operands make_grouped(const Shapes& s, int64_t tokens) {
  const int64_t width = s.heads * s.head_dim;
  const Layer t{.x = normal({tokens, width}),
                .weight = normal({2 * s.hidden, width / kGroups}, 0.02)};
  return {.leaves = {t.x, t.weight}, .forward = [t] {
            return std::vector<at::Tensor>{ops::grouped_linear(t.x, t.weight, kGroups)};
          }};
}

}  // namespace

void add_linear_cases(OpCases& cases, const Shapes& s) {
  const int64_t tokens = s.dense_tokens;
  const auto add = [&](const char* op, int64_t in, int64_t out, int64_t groups, auto make) {
    const auto t = static_cast<double>(tokens), x = static_cast<double>(in),
               y = static_cast<double>(out), w = x * y / static_cast<double>(groups);
    cases.push_back({.op = op,
                     .size = size_text(s, tokens),
                     .forward = {2 * t * w, kFloat * (t * x + t * y + w)},
                     .backward = {4 * t * w, kFloat * (2 * t * x + t * y + 2 * w)},
                     .make = [=] { return make(s, tokens); }});
  };
  add("linear", s.hidden, s.index_heads * s.index_dim, 1, make_linear);
  add("grouped_linear", s.heads * s.head_dim, 2 * s.hidden, kGroups, make_grouped);
}

}  // namespace lethe::bench
