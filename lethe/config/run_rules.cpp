#include "lethe/config/run_rules.h"

#include <algorithm>
#include <array>

namespace lethe {
namespace {

std::string whole_microbatches(const RunConfig& c) {
  const int64_t global = c.train.global_batch_size, micro = c.train.micro_batch_size;
  if (global % micro == 0) return "";
  return fmt::format("must be a multiple of micro_batch_size = {}, got {}; give {}",
                     micro,
                     global,
                     (global / micro + 1) * micro);
}

std::string falling_rate(const RunConfig& c) {
  if (c.train.min_lr <= c.train.lr) return "";
  return fmt::format("must be <= lr = {}, got {}; lower it", c.train.lr, c.train.min_lr);
}

std::string warmup_ends(const RunConfig& c) {
  if (c.train.lr_warmup_iters < c.train.train_iters) return "";
  return fmt::format("must be < train_iters = {}, got {}; warm up for fewer steps",
                     c.train.train_iters,
                     c.train.lr_warmup_iters);
}

std::string positions_exist(const RunConfig& c) {
  if (c.train.seq_length <= c.model.max_positions) return "";
  return fmt::format("must be <= max_position_embeddings = {}, got {}; shorten the rows",
                     c.model.max_positions,
                     c.train.seq_length);
}

std::string coefficient_given(const RunConfig& c) {
  if (!has_indexer(c.model) || c.train.indexer_loss == IndexerLoss::Off) return "";
  if (c.train.indexer_loss_coeff) return "";
  return "must be given, since a ratio-4 layer is trained, got nothing; give 0.01, 0 to "
         "freeze the indexer, or --indexer-loss off";
}

std::string indexer_alone_learns(const RunConfig& c) {
  if (!c.train.train_only_indexer) return "";
  const char* actual = nullptr;
  if (!has_indexer(c.model))
    actual = "no layer with ratio 4";
  else if (c.train.indexer_loss == IndexerLoss::Off)
    actual = "indexer_loss = off";
  else if (c.train.indexer_loss_coeff.value_or(0) == 0)
    actual = "dsa_indexer_loss_coeff = 0";
  if (actual == nullptr) return "";
  return fmt::format(
      "must have an indexer and its loss to train, got {}; leave it out or "
      "change that",
      actual);
}

constexpr std::array<RunRule, 6> kTrainRules{{
    {"T1",
     "--global-batch-size",
     "global_batch_size is a multiple of micro_batch_size",
     whole_microbatches},
    {"T2", "--min-lr", "min_lr <= lr", falling_rate},
    {"T3", "--lr-warmup-iters", "lr_warmup_iters < train_iters", warmup_ends},
    {"T4", "--seq-length", "seq_length <= max_position_embeddings", positions_exist},
    {"T5",
     "--dsa-indexer-loss-coeff",
     "dsa_indexer_loss_coeff is given where a ratio-4 layer is trained",
     coefficient_given},
    {"T6",
     "--train-only-indexer",
     "train_only_indexer has a ratio-4 layer, its loss and a coefficient > 0",
     indexer_alone_learns},
}};

struct Unused {
  const char* key;
  bool (*is_read)(const RunConfig&);
  const char* needs;
};

constexpr const char* kNeedsIndexer = "a layer with ratio 4";
constexpr const char* kNeedsIndexerLoss = "indexer_loss other than off";

bool indexer_exists(const RunConfig& c) {
  return has_indexer(c.model);
}

bool indexer_learns(const RunConfig& c) {
  return c.train.indexer_loss != IndexerLoss::Off;
}

bool validates(const RunConfig& c) {
  return c.train.valid_fraction > 0;
}

bool balances_hash_layers(const RunConfig& c) {
  return !c.train.balance_hash_layers ||
         (c.model.num_hash_layers > 0 && c.train.balance_loss_coeff > 0);
}

bool has_mtp(const RunConfig& c) {
  return c.model.num_mtp > 0;
}

constexpr std::array<Unused, 9> kUnused{{
    {"dsa_indexer_loss_coeff", indexer_exists, kNeedsIndexer},
    {"indexer_teacher", indexer_exists, kNeedsIndexer},
    {"csa_attention", indexer_exists, kNeedsIndexer},
    {"indexer_loss", indexer_exists, kNeedsIndexer},
    {"dsa_indexer_loss_coeff", indexer_learns, kNeedsIndexerLoss},
    {"indexer_teacher", indexer_learns, kNeedsIndexerLoss},
    {"mtp_loss_scaling_factor", has_mtp, "mtp_num_layers > 0"},
    {"seq_aux_hash_layers", balances_hash_layers, "a hash layer and moe_aux_loss_coeff > 0"},
    {"eval_interval", validates, "valid_fraction > 0"},
}};

}  // namespace

std::span<const RunRule> train_rules() {
  return kTrainRules;
}

void check_unused(const RunConfig& config,
                  const SettingLayer& given,
                  ErrorList& errors,
                  std::vector<std::string>& notes) {
  for (const Unused& row : kUnused) {
    const auto found = given.find(row.key);
    if (found == given.end() || row.is_read(config)) continue;
    const AssignedSetting& assigned = found->second;
    if (assigned.origin == kCommandLineOrigin) {
      errors.add(fmt::format("{} [U]: must have {} to act on, got {} without it; leave it out",
                             assigned.shown,
                             row.needs,
                             value_text(assigned.value)));
    } else {
      notes.push_back(
          fmt::format("{} ({}) is not used: it needs {}", row.key, assigned.origin, row.needs));
    }
  }
}

bool has_indexer(const ModelConfig& model) {
  return std::find(model.ratios.begin(), model.ratios.end(), kCsaRatio) != model.ratios.end();
}

}  // namespace lethe
