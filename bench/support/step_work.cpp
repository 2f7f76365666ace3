#include "bench/support/step_work.h"

#include <algorithm>
#include <limits>

namespace lethe::bench {
namespace {

constexpr double kFloat = 4;  // bytes

enum class Passes { Step, Forward };

// Collects nodes by name: the same node of another layer is added.
class Work final {
 public:
  Work(const ModelConfig& config, int64_t tokens, Passes passes)
      : c_(config), tokens_(tokens), t_(static_cast<double>(tokens)), passes_(passes) {}

  void layer(int64_t index) {
    const int64_t ratio = c_.ratio(index);
    mhc();
    norms();
    projections();
    if (ratio > 0) compressor("compressor", ratio, c_.head_dim, /*trained=*/true);
    if (ratio == kCsaRatio) indexer();
    attention(ratio);
    moe();
  }

  void ends() {
    const double d = static_cast<double>(c_.hidden), n = static_cast<double>(c_.streams);
    pointwise("embedding", {t_ * d * 2, 0}, {t_ * d * 2, 0});
    const double streams = t_ * n * d, mixing = 2 * streams * n;
    pointwise("mhc_head",
              {streams + t_ * d, mixing + streams},
              {2 * streams + 2 * t_ * d, 2 * mixing + 3 * streams});
    norm(c_.hidden);
    linear("head and cross-entropy", c_.hidden, c_.vocab_size, /*trained=*/true);
  }

  std::vector<NodeWork> take() { return std::move(nodes_); }

 private:
  NodeWork& node(const std::string& name) {
    const auto found = std::find_if(
        nodes_.begin(), nodes_.end(), [&](const NodeWork& n) { return n.name == name; });
    if (found != nodes_.end()) return *found;
    nodes_.emplace_back().name = name;
    return nodes_.back();
  }

  // What one pass moves and computes.
  struct Cost {
    double floats = 0, flops = 0;
  };

  void pointwise(const std::string& name, const Cost& forward, const Cost& backward) {
    NodeWork& work = node(name);
    work.bytes += kFloat * forward.floats;
    work.flops += forward.flops;
    if (passes_ == Passes::Forward) return;
    work.bytes += kFloat * backward.floats;
    work.flops += backward.flops;
  }

  void product(NodeWork& work, const Gemm& g) {
    const auto m = static_cast<double>(g.m), n = static_cast<double>(g.n),
               k = static_cast<double>(g.k);
    work.flops += g.flops();
    work.bytes += kFloat * g.times * (m * k + k * n + m * n);
    work.gemms.push_back(g);
  }

  // y [rows,out] = x w^T, `times` of them; backward dx = dy w and dw = dy^T x.
  void linears(
      const std::string& name, int64_t rows, int64_t in, int64_t out, double times, bool trained) {
    NodeWork& work = node(name);
    product(work, {.m = rows, .n = out, .k = in, .times = times});
    if (!trained || passes_ == Passes::Forward) return;
    product(work, {.m = rows, .n = in, .k = out, .times = times});
    product(work, {.m = out, .n = in, .k = rows, .times = times});
  }

  void linear(const std::string& name, int64_t in, int64_t out, bool trained) {
    linears(name, tokens_, in, out, 1, trained);
  }

  // Both sites of a layer. Streams are read once each way by pre and by post, and written by post
  // and by both backwards.
  void mhc() {
    const double d = static_cast<double>(c_.hidden), n = static_cast<double>(c_.streams);
    const double streams = t_ * n * d, rows = static_cast<double>(c_.mhc_rows());
    const double sinkhorn = t_ * n * n * 4 * static_cast<double>(c_.sinkhorn_iterations);
    const double pre = 2 * streams * rows + 2 * streams + sinkhorn;
    const double post = 2 * streams * n + 2 * streams;
    for (int site = 0; site < 2; ++site) {
      pointwise("mhc_pre", {streams + t_ * d, pre}, {2 * streams + t_ * d, 2 * pre});
      pointwise("mhc_post", {2 * streams + t_ * d, post}, {2 * streams + 2 * t_ * d, 2 * post});
    }
  }

  void norm(int64_t width) {
    const double floats = t_ * static_cast<double>(width);
    pointwise("rms_norm", {2 * floats, 4 * floats}, {3 * floats, 8 * floats});
  }

  // Of the two sub-layer inputs and the low-rank query.
  void norms() {
    for (const int64_t width : {c_.hidden, c_.hidden, c_.q_lora_rank}) norm(width);
  }

  void projections() {
    const int64_t q = c_.heads * c_.head_dim;
    linear("wq_a", c_.hidden, c_.q_lora_rank, true);
    linear("wq_b", c_.q_lora_rank, q, true);
    linear("wkv", c_.hidden, c_.head_dim, true);
    linears(
        "wo_a", tokens_, q / c_.o_groups, c_.o_lora_rank, static_cast<double>(c_.o_groups), true);
    linear("wo_b", c_.o_groups * c_.o_lora_rank, c_.hidden, true);
    const double rotated = t_ * static_cast<double>(q + c_.head_dim);
    pointwise("q and kv norm, rope", {2 * rotated, 6 * rotated}, {3 * rotated, 10 * rotated});
  }

  void compressor(const std::string& name, int64_t ratio, int64_t width, bool trained) {
    const int64_t channels = (ratio == kCsaRatio ? 2 : 1) * width;
    linears(name + " projections", tokens_, c_.hidden, channels, 2, trained);
    const double in = t_ * static_cast<double>(2 * channels);
    const double out = t_ / static_cast<double>(ratio) * static_cast<double>(width);
    pointwise(name, {in + out, 5 * in}, trained ? Cost{2 * in + out, 10 * in} : Cost{});
  }

  void indexer() {
    linear("indexer projections", c_.q_lora_rank, c_.index_heads * c_.index_head_dim, false);
    linear("indexer projections", c_.hidden, c_.index_heads, false);
    compressor("indexer compressor", kCsaRatio, c_.index_head_dim, false);
    const double q = t_ * static_cast<double>(c_.index_heads * c_.index_head_dim);
    pointwise("indexer rope, hadamard", {2 * q, 10 * q}, {});
    const double slots = slot_keys(tokens_, kCsaRatio, std::numeric_limits<int64_t>::max());
    pointwise(
        "indexer scores and top-k",
        {q + t_ * static_cast<double>(c_.index_heads + c_.index_topk),
         indexer_flops(
             static_cast<double>(c_.index_heads), static_cast<double>(c_.index_head_dim), slots)},
        {});
  }

  void attention(int64_t ratio) {
    const auto h = static_cast<double>(c_.heads), d = static_cast<double>(c_.head_dim);
    double keys = window_keys(tokens_, c_.window), rows = t_;
    if (ratio > 0) {
      const bool sparse = ratio == kCsaRatio;
      keys +=
          slot_keys(tokens_, ratio, sparse ? c_.index_topk : std::numeric_limits<int64_t>::max());
      rows += t_ / static_cast<double>(ratio);
    }
    // Forward reads q and writes o; backward reads q, o, do and writes dq; key rows once each way.
    pointwise("sparse attention",
              {2 * t_ * h * d + rows * d, attention_forward_flops(h, d, keys)},
              {4 * t_ * h * d + 2 * rows * d, attention_backward_flops(h, d, keys)});
  }

  void moe() {
    const int64_t wide = 2 * c_.expert_width;
    linear("gate", c_.hidden, c_.num_experts, true);
    const auto experts = static_cast<double>(c_.num_experts);
    const int64_t rows = std::max<int64_t>(1, tokens_ * c_.experts_per_token / c_.num_experts);
    linears("experts", rows, c_.hidden, wide, experts, true);
    linears("experts", rows, c_.expert_width, c_.hidden, experts, true);
    linear("shared expert", c_.hidden, wide, true);
    linear("shared expert", c_.expert_width, c_.hidden, true);
    const double sum = t_ * static_cast<double>(c_.hidden);
    pointwise("routed + shared", {3 * sum, sum}, {});
  }

  const ModelConfig& c_;
  int64_t tokens_;
  double t_;
  Passes passes_;
  std::vector<NodeWork> nodes_;
};

}  // namespace

double window_keys(int64_t tokens, int64_t window) {
  double sum = 0;
  for (int64_t q = 0; q < tokens; ++q) sum += static_cast<double>(std::min(q + 1, window));
  return sum;
}

double slot_keys(int64_t tokens, int64_t ratio, int64_t most) {
  double sum = 0;
  for (int64_t q = 0; q < tokens; ++q) sum += static_cast<double>(std::min((q + 1) / ratio, most));
  return sum;
}

double attention_forward_flops(double heads, double head_dim, double keys) {
  return 4 * heads * head_dim * keys;
}

double attention_backward_flops(double heads, double head_dim, double keys) {
  return 10 * heads * head_dim * keys;
}

double indexer_flops(double heads, double head_dim, double slots) {
  return (2 * head_dim + 3) * heads * slots;
}

std::vector<NodeWork> layer_work(const ModelConfig& config, int64_t layer, int64_t tokens) {
  Work work(config, tokens, Passes::Step);
  work.layer(layer);
  return work.take();
}

std::vector<NodeWork> step_work(const ModelConfig& config, int64_t tokens) {
  Work work(config, tokens, Passes::Step);
  for (int64_t i = 0; i < config.num_layers; ++i) work.layer(i);
  work.ends();
  return work.take();
}

std::vector<NodeWork> replay_work(const ModelConfig& config, int64_t tokens) {
  Work work(config, tokens, Passes::Forward);
  for (int64_t i = 0; i < config.num_layers; ++i) work.layer(i);
  return work.take();
}

double total_flops(const std::vector<NodeWork>& nodes) {
  double sum = 0;
  for (const NodeWork& node : nodes) sum += node.flops;
  return sum;
}

}  // namespace lethe::bench
