#include "bench/ops/op_case.h"

#include <ATen/ops/randint.h>

#include "lethe/ops/cross_entropy.h"

namespace lethe::bench {
namespace {

constexpr double kFloat = sizeof(float);
constexpr int64_t kChunk = 256;

struct Head {
  at::Tensor hidden, weight, labels;
};

at::Tensor call_cross_entropy(const Head& t) {
  return std::get<0>(ops::cross_entropy(t.hidden, t.weight, t.labels, kChunk));
}

Operands make(const Shapes& s, int64_t tokens) {
  const Head t{.hidden = normal({tokens, s.hidden}),
               .weight = normal({s.vocab, s.hidden}, 0.02),
               .labels = at::randint(s.vocab, {tokens}, at::kLong)};
  return {.leaves = {t.hidden, t.weight},
          .forward = [t] { return std::vector<at::Tensor>{call_cross_entropy(t)}; }};
}

}  // namespace

void add_head_cases(OpCases& cases, const Shapes& s) {
  const int64_t tokens = s.dense_tokens;
  const auto t = static_cast<double>(tokens), d = static_cast<double>(s.hidden),
             v = static_cast<double>(s.vocab);
  cases.push_back({.op = "cross_entropy",
                   .size = size_text(s, tokens),
                   .forward = {2 * t * d * v, kFloat * (t * d + v * d)},
                   .backward = {4 * t * d * v, kFloat * (2 * t * d + 2 * v * d)},
                   .make = [s, tokens] { return make(s, tokens); }});
}

}  // namespace lethe::bench
