#include "lethe/config/validate.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "lethe/base/error.h"
#include "lethe/config/contract_table.h"

namespace lethe {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 24;  // far above any model, far below overflow of sums
constexpr int64_t kMaxExperts = int64_t{1} << 16;
constexpr double kMaxElements = 0x1p53;  // of one tensor

constexpr std::array kRules = {
    ModelRule{"M1", "every size is at least 1 and at most 2^24 (experts 2^16)"},
    ModelRule{"M2", "o_groups divides the number of heads"},
    ModelRule{"M3", "head_dim is even"},
    ModelRule{"M4", "the rotary channels are even and at most head_dim and index_head_dim"},
    ModelRule{"M5", "index_head_dim is a power of two"},
    ModelRule{"M6", "experts per token do not exceed the experts"},
    ModelRule{"M7", "hash layers are at least 0 and at most the main layers"},
    ModelRule{"M8", "one ratio per main layer and per MTP block"},
    ModelRule{"M9", "a ratio is 0 or at least 2, and at most 2^24"},
    ModelRule{"M10", "the ratio of an MTP block is 0"},
    ModelRule{"M11", "the number of MTP blocks is at least 0"},
    ModelRule{"M12", "the score function is sqrtsoftplus, sigmoid or softmax"},
    ModelRule{"M13", "scales, limits and epsilons are finite and in range"},
    ModelRule{"M14", "rotary bases are finite and above 1"},
    ModelRule{"M15", "YaRN: factor >= 1, original positions >= 1, beta_fast >= beta_slow > 0"},
    ModelRule{"M16", "no tensor has more than 2^53 elements"},
};

class Report {
 public:
  explicit Report(std::string_view where) : where_(where) {}

  /// Notes a violation of `rule` unless `holds`. text: what must hold, got; what to do.
  template <class... Args>
  void require(bool holds, const char* rule, fmt::format_string<Args...> text, Args&&... args) {
    if (holds) return;
    lines_.push_back(
        fmt::format("{} [{}]: {}", where_, rule, fmt::format(text, std::forward<Args>(args)...)));
  }

  [[nodiscard]] std::vector<std::string> take() { return std::move(lines_); }

 private:
  std::string where_;
  std::vector<std::string> lines_;
};

struct Size {
  const char* key;
  int64_t value;
};

void check_sizes(const ModelConfig& c, Report& report) {
  const std::array sizes = {Size{"vocab_size", c.vocab_size},
                            Size{"hidden_size", c.hidden},
                            Size{"num_hidden_layers", c.num_layers},
                            Size{"num_attention_heads", c.heads},
                            Size{"head_dim", c.head_dim},
                            Size{"qk_rope_head_dim", c.rope_dims},
                            Size{"q_lora_rank", c.q_lora_rank},
                            Size{"o_groups", c.o_groups},
                            Size{"o_lora_rank", c.o_lora_rank},
                            Size{"sliding_window", c.window},
                            Size{"n_routed_experts", c.num_experts},
                            Size{"num_experts_per_tok", c.experts_per_token},
                            Size{"moe_intermediate_size", c.expert_width},
                            Size{"index_n_heads", c.index_heads},
                            Size{"index_head_dim", c.index_head_dim},
                            Size{"index_topk", c.index_topk},
                            Size{"hc_mult", c.streams},
                            Size{"hc_sinkhorn_iters", c.sinkhorn_iterations},
                            Size{"max_position_embeddings", c.max_positions}};
  for (const Size& size : sizes) {
    const int64_t most =
        size.value == c.num_experts && size.key == std::string_view("n_routed_experts")
            ? kMaxExperts
            : kMaxSize;
    report.require(size.value >= 1 && size.value <= most,
                   "M1",
                   "{} must be in [1, {}], got {}; correct it",
                   size.key,
                   most,
                   size.value);
  }
}

void check_attention(const ModelConfig& c, Report& report) {
  report.require(
      c.o_groups < 1 || c.heads % c.o_groups == 0,
      "M2",
      "o_groups must divide num_attention_heads = {}, got {}; a group is a whole number of heads",
      c.heads,
      c.o_groups);
  report.require(c.head_dim % 2 == 0,
                 "M3",
                 "head_dim must be even, got {}; channels rotate in pairs",
                 c.head_dim);
  report.require(
      c.rope_dims % 2 == 0 && c.rope_dims <= std::min(c.head_dim, c.index_head_dim),
      "M4",
      "qk_rope_head_dim must be even and at most min(head_dim, index_head_dim) = {}, got {}; "
      "the same rotation serves heads and indexer",
      std::min(c.head_dim, c.index_head_dim),
      c.rope_dims);
  report.require(
      c.index_head_dim < 1 || std::has_single_bit(static_cast<uint64_t>(c.index_head_dim)),
      "M5",
      "index_head_dim must be a power of two, got {}; the indexer applies a Hadamard transform",
      c.index_head_dim);
}

void check_router(const ModelConfig& c, Report& report) {
  report.require(c.experts_per_token <= c.num_experts,
                 "M6",
                 "num_experts_per_tok must be at most n_routed_experts = {}, got {}; lower it",
                 c.num_experts,
                 c.experts_per_token);
  report.require(
      c.num_hash_layers >= 0 && c.num_hash_layers <= c.num_layers,
      "M7",
      "num_hash_layers must be in [0, {}], got {}; hash layers are the first main layers",
      c.num_layers,
      c.num_hash_layers);
  const bool known = c.score_function == "sqrtsoftplus" || c.score_function == "sigmoid" ||
                     c.score_function == "softmax";
  report.require(known,
                 "M12",
                 "scoring_func must be sqrtsoftplus, sigmoid or softmax, got '{}'; choose one",
                 c.score_function);
}

void check_schedule(const ModelConfig& c, Report& report) {
  report.require(c.num_mtp >= 0,
                 "M11",
                 "num_nextn_predict_layers must be at least 0, got {}; 0 means no MTP",
                 c.num_mtp);
  const auto given = static_cast<int64_t>(c.ratios.size());
  report.require(given == c.num_layers + c.num_mtp,
                 "M8",
                 "compress_ratios must have num_hidden_layers + num_nextn_predict_layers = {} "
                 "entries, got {}; "
                 "give one per layer, and 0 per MTP block",
                 c.num_layers + c.num_mtp,
                 given);
  for (int64_t i = 0; i < given; ++i) {
    const int64_t ratio = c.ratio(i);
    report.require(
        ratio == 0 || (ratio >= 2 && ratio <= kMaxSize),
        "M9",
        "compress_ratios[{}] must be 0, 4 or any ratio from 2 to {}, got {}; 0 means window only",
        i,
        kMaxSize,
        ratio);
    report.require(
        i < c.num_layers || ratio == 0,
        "M10",
        "compress_ratios[{}] belongs to an MTP block and must be 0, got {}; MTP has no compressor",
        i,
        ratio);
  }
}

void check_numbers(const ModelConfig& c, Report& report) {
  struct Number {
    const char* key;
    double value;
    bool positive;
  };

  const std::array numbers = {Number{"routed_scaling_factor", c.route_scale, true},
                              Number{"swiglu_limit", c.swiglu_limit, false},
                              Number{"hc_eps", c.hc_eps, false},
                              Number{"rms_norm_eps", c.norm_eps, true},
                              Number{"initializer_range", c.init_range, false},
                              Number{"mhc-init-gating-factor", c.init_alpha, false}};
  for (const Number& n : numbers) {
    report.require(std::isfinite(n.value) && (n.positive ? n.value > 0 : n.value >= 0),
                   "M13",
                   "{} must be finite and {} 0, got {}; correct it",
                   n.key,
                   n.positive ? ">" : ">=",
                   n.value);
  }
  report.require(std::isfinite(c.rope_theta) && c.rope_theta > 1,
                 "M14",
                 "rope_theta must be finite and above 1, got {}; 10000 in the releases",
                 c.rope_theta);
  report.require(std::isfinite(c.compress_rope_theta) && c.compress_rope_theta > 1,
                 "M14",
                 "compress_rope_theta must be finite and above 1, got {}; 160000 in the releases",
                 c.compress_rope_theta);
  if (!c.yarn) return;
  const YarnScaling& y = *c.yarn;
  report.require(std::isfinite(y.factor) && y.factor >= 1,
                 "M15",
                 "rope_scaling.factor must be finite and at least 1, got {}; 16 in the releases",
                 y.factor);
  report.require(y.original_max_positions >= 1 && y.original_max_positions <= kMaxSize,
                 "M15",
                 "rope_scaling.original_max_position_embeddings must be in [1, {}], got {}; 65536 "
                 "in the releases",
                 kMaxSize,
                 y.original_max_positions);
  report.require(
      std::isfinite(y.beta_fast) && y.beta_slow > 0 && y.beta_fast >= y.beta_slow,
      "M15",
      "rope_scaling must have beta_fast >= beta_slow > 0, got {} and {}; 32 and 1 in the releases",
      y.beta_fast,
      y.beta_slow);
}

/// After all sizes were found in range: each dimension then fits 64 bits, products need not.
void check_elements(const ModelConfig& c, Report& report) {
  const int64_t largest =
      c.ratios.empty() ? 0 : *std::max_element(c.ratios.begin(), c.ratios.end());
  for (const ContractRow& row : contract_table()) {
    double elements = row.per_expert ? static_cast<double>(c.num_experts) : 1.0;
    for (const Dim dim : row.shape) {
      if (dim != Dim::None) elements *= static_cast<double>(dim_size(dim, c, largest));
    }
    report.require(elements <= kMaxElements,
                   "M16",
                   "'{}' must have at most 2^53 elements, got {:.3g}; lower the sizes",
                   row.internal,
                   elements);
  }
}

}  // namespace

std::span<const ModelRule> model_rules() {
  return kRules;
}

std::vector<std::string> model_violations(const ModelConfig& config, std::string_view where) {
  Report report(where);
  check_sizes(config, report);
  check_attention(config, report);
  check_router(config, report);
  check_schedule(config, report);
  check_numbers(config, report);
  std::vector<std::string> lines = report.take();
  if (lines.empty()) {
    Report products(where);
    check_elements(config, products);
    lines = products.take();
  }
  return lines;
}

void validate(const ModelConfig& config, std::string_view where) {
  const std::vector<std::string> lines = model_violations(config, where);
  LETHE_CHECK(ConfigError, lines.empty(), "{}", fmt::join(lines, "\n"));
}

}  // namespace lethe
