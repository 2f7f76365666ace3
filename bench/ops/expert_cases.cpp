#include "bench/ops/op_case.h"

#include <ATen/ops/rand.h>

#include "lethe/ops/experts.h"
#include "lethe/ops/gate.h"
#include "lethe/ops/swiglu_mlp.h"

namespace lethe::bench {
namespace {

constexpr double kFloat = sizeof(float), kLimit = 10, kScale = 1.5;

struct Router {
  at::Tensor x, weight, bias;
};

// Scores, choice and weights from the router's input.
at::Tensor call_gate(const Router& t, int64_t k) {
  return std::get<0>(
      ops::gate(t.x,
                t.weight,
                t.bias,
                std::nullopt,
                {.k = k, .score_function = "sqrtsoftplus", .normalize = true, .scale = kScale}));
}

Operands make_gate(const Shapes& s, int64_t tokens) {
  const Router t{.x = normal({tokens, s.hidden}),
                 .weight = normal({s.router_experts, s.hidden}, 0.02),
                 .bias = normal({s.router_experts}, 0.1)};
  return {.leaves = {t.x, t.weight},
          .forward = [t, k = s.router_choice] { return std::vector<at::Tensor>{call_gate(t, k)}; }};
}

struct Routed {
  at::Tensor x, weights, indices, fc1, fc2;
};

at::Tensor call_experts(const Routed& t) {
  return ops::experts(t.x, t.weights, t.indices, t.fc1, t.fc2, kLimit);
}

Operands make_experts(const Shapes& s, int64_t tokens) {
  const Routed t{.x = normal({tokens, s.hidden}),
                 .weights = normal({tokens, s.experts_per_token}),
                 .indices = ops::reference::gate_select(
                     at::rand({tokens, s.experts}, at::kFloat), std::nullopt, s.experts_per_token),
                 .fc1 = normal({s.experts, 2 * s.expert_width, s.hidden}, 0.02),
                 .fc2 = normal({s.experts, s.hidden, s.expert_width}, 0.02)};
  return {.leaves = {t.x, t.weights, t.fc1, t.fc2},
          .forward = [t] { return std::vector<at::Tensor>{call_experts(t)}; }};
}

struct Shared {
  at::Tensor x, fc1, fc2;
};

at::Tensor call_shared(const Shared& t) {
  return ops::swiglu_mlp(t.x, t.fc1, t.fc2, kLimit);
}

Operands make_shared(const Shapes& s, int64_t tokens) {
  const Shared t{.x = normal({tokens, s.hidden}),
                 .fc1 = normal({2 * s.expert_width, s.hidden}, 0.02),
                 .fc2 = normal({s.hidden, s.expert_width}, 0.02)};
  return {.leaves = {t.x, t.fc1, t.fc2},
          .forward = [t] { return std::vector<at::Tensor>{call_shared(t)}; }};
}

void add_gate(OpCases& cases, const Shapes& s) {
  const int64_t tokens = stream_tokens(s, s.hidden);
  const auto t = static_cast<double>(tokens), d = static_cast<double>(s.hidden),
             e = static_cast<double>(s.router_experts), k = static_cast<double>(s.router_choice);
  cases.push_back({.op = "gate",
                   .size = size_text(s, tokens),
                   .forward = {2 * t * d * e, kFloat * (t * d + e * d + 2 * t * k)},
                   .backward = {4 * t * d * e, kFloat * (2 * t * d + 2 * e * d + 2 * t * k)},
                   .make = [s, tokens] { return make_gate(s, tokens); }});
}

}  // namespace

void add_expert_cases(OpCases& cases, const Shapes& s) {
  const int64_t tokens = s.dense_tokens;
  const auto t = static_cast<double>(tokens), d = static_cast<double>(s.hidden),
             width = static_cast<double>(s.expert_width), e = static_cast<double>(s.experts),
             k = static_cast<double>(s.experts_per_token);
  add_gate(cases, s);
  const double flops = 6 * d * width, weights = 3 * d * width;
  cases.push_back({.op = "experts",
                   .size = size_text(s, tokens),
                   .forward = {t * k * flops, kFloat * (2 * t * d + e * weights)},
                   .backward = {2 * t * k * flops, kFloat * (3 * t * d + 2 * e * weights)},
                   .make = [s, tokens] { return make_experts(s, tokens); }});
  cases.push_back({.op = "swiglu_mlp",
                   .size = size_text(s, tokens),
                   .forward = {t * flops, kFloat * (2 * t * d + weights)},
                   .backward = {2 * t * flops, kFloat * (3 * t * d + 2 * weights)},
                   .make = [s, tokens] { return make_shared(s, tokens); }});
}

}  // namespace lethe::bench
