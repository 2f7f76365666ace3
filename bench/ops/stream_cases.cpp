#include <algorithm>

#include "bench/ops/op_case.h"

#include "lethe/ops/mhc_head.h"
#include "lethe/ops/mhc_post.h"
#include "lethe/ops/mhc_pre.h"
#include "lethe/ops/sinkhorn.h"

namespace lethe::bench {
namespace {

constexpr double kFloat = sizeof(float), kEps = 1e-6;
constexpr int64_t kIterations = 20;

struct Site {
  at::Tensor streams, fn, base, scale;
};

Site site(const Shapes& s, int64_t tokens, int64_t rows, int64_t scales) {
  return {.streams = normal({tokens, s.streams, s.hidden}),
          .fn = normal({rows, s.streams * s.hidden}, 0.02),
          .base = normal({rows}, 0.1),
          .scale = normal({scales}, 0.1)};
}

std::vector<at::Tensor> call_pre(const Site& t) {
  const auto [u, post, comb, pre] =
      ops::mhc_pre(t.streams, t.fn, t.base, t.scale, kIterations, kEps, kEps);
  return {u, post, comb};
}

at::Tensor call_head(const Site& t) {
  return ops::mhc_head(t.streams, t.fn, t.base, t.scale, kEps, kEps);
}

struct Mixing {
  at::Tensor y, streams, post, comb;
};

at::Tensor call_post(const Mixing& t) {
  return ops::mhc_post(t.y, t.streams, t.post, t.comb);
}

at::Tensor call_sinkhorn(const at::Tensor& logits) {
  return ops::sinkhorn(logits, kIterations, kEps);
}

Operands make_pre(const Shapes& s, int64_t tokens) {
  const Site t = site(s, tokens, (2 + s.streams) * s.streams, 3);
  return {.leaves = {t.streams, t.fn, t.base, t.scale}, .forward = [t] { return call_pre(t); }};
}

Operands make_head(const Shapes& s, int64_t tokens) {
  const Site t = site(s, tokens, s.streams, 1);
  return {.leaves = {t.streams, t.fn, t.base, t.scale},
          .forward = [t] { return std::vector<at::Tensor>{call_head(t)}; }};
}

Operands make_post(const Shapes& s, int64_t tokens) {
  const Mixing t{.y = normal({tokens, s.hidden}),
                 .streams = normal({tokens, s.streams, s.hidden}),
                 .post = normal({tokens, s.streams}),
                 .comb = normal({tokens, s.streams, s.streams})};
  return {.leaves = {t.y, t.streams, t.post, t.comb},
          .forward = [t] { return std::vector<at::Tensor>{call_post(t)}; }};
}

Operands make_sinkhorn(const Shapes& s, int64_t tokens) {
  const at::Tensor logits = normal({tokens, s.streams, s.streams});
  return {.leaves = {logits},
          .forward = [logits] { return std::vector<at::Tensor>{call_sinkhorn(logits)}; }};
}

void add_sinkhorn(OpCases& cases, const Shapes& s) {
  const int64_t many = stream_tokens(s, 2 * s.streams * s.streams);
  const auto m = static_cast<double>(many), n = static_cast<double>(s.streams);
  cases.push_back({.op = "sinkhorn",
                   .size = size_text(s, many),
                   .forward = {m * n * n * 4 * kIterations, kFloat * 2 * m * n * n},
                   .backward = {2 * m * n * n * 4 * kIterations, kFloat * 3 * m * n * n},
                   .make = [s, many] { return make_sinkhorn(s, many); }});
}

}  // namespace

void add_stream_cases(OpCases& cases, const Shapes& s) {
  const auto n = static_cast<double>(s.streams), d = static_cast<double>(s.hidden);
  const int64_t tokens = stream_tokens(s, (s.streams + 1) * s.hidden);
  const auto t = static_cast<double>(tokens);
  const double x = t * n * d, rows = (2 + n) * n, sinkhorn = 4 * n * n * kIterations;
  const double pre = x * (2 * rows + 4) + t * sinkhorn, post = x * (2 * n + 2);
  cases.push_back({.op = "mhc_pre",
                   .size = size_text(s, tokens),
                   .forward = {pre, kFloat * (x + t * d)},
                   .backward = {2 * pre, kFloat * (2 * x + t * d)},
                   .make = [s, tokens] { return make_pre(s, tokens); }});
  cases.push_back({.op = "mhc_post",
                   .size = size_text(s, tokens),
                   .forward = {post, kFloat * (2 * x + t * d)},
                   .backward = {2 * post, kFloat * (3 * x + 2 * t * d)},
                   .make = [s, tokens] { return make_post(s, tokens); }});
  cases.push_back({.op = "mhc_head",
                   .size = size_text(s, tokens),
                   .forward = {x * (2 * n + 4), kFloat * (x + t * d)},
                   .backward = {2 * x * (2 * n + 4), kFloat * (2 * x + t * d)},
                   .make = [s, tokens] { return make_head(s, tokens); }});
  // Only the number of streams matters to it, and that is 4 in all models.
  const auto is_sinkhorn = [](const OpCase& c) { return c.op == "sinkhorn"; };
  if (std::none_of(cases.begin(), cases.end(), is_sinkhorn)) add_sinkhorn(cases, s);
}

}  // namespace lethe::bench
