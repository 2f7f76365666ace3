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

std::string decay_fits(const RunConfig& c) {
  const TrainConfig& t = c.train;
  if (t.lr_decay_iters == 0 || t.lr_decay_iters > t.lr_warmup_iters) return "";
  return fmt::format("must be 0 or > lr_warmup_iters = {}, got {}; decay later or warm up shorter",
                     t.lr_warmup_iters,
                     t.lr_decay_iters);
}

std::string wsd_decay_fits(const RunConfig& c) {
  const TrainConfig& t = c.train;
  if (t.lr_decay_style != DecayStyle::Wsd) return "";
  const int64_t most =
      (t.lr_decay_iters > 0 ? t.lr_decay_iters : t.train_iters) - t.lr_warmup_iters;
  if (t.lr_wsd_decay_iters >= 1 && t.lr_wsd_decay_iters <= most) return "";
  return fmt::format(
      "must be 1 to {}, the steps between warm-up and end, got {}; give a tenth of "
      "the steps",
      most,
      t.lr_wsd_decay_iters);
}

std::string retained_are_saved(const RunConfig& c) {
  const int64_t retain = c.checkpoint.save_retain_interval, save = c.checkpoint.save_interval;
  if (retain == 0 || (save > 0 && retain % save == 0)) return "";
  return fmt::format(
      "must be a multiple of save_interval = {}, got {}; other steps are never saved",
      save,
      retain);
}

constexpr std::array<RunRule, 9> kTrainRules{{
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
    {"T7", "--lr-decay-iters", "lr_decay_iters is 0 or > lr_warmup_iters", decay_fits},
    {"T8",
     "--lr-wsd-decay-iters",
     "lr_wsd_decay_iters of WSD is between 1 and the steps behind the warm-up",
     wsd_decay_fits},
    {"T9",
     "--save-retain-interval",
     "save_retain_interval is a multiple of save_interval",
     retained_are_saved},
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

bool mtp_is_there_to_skip(const RunConfig& c) {
  return c.recompute.mtp == MtpSelection::Include || has_mtp(c);
}

bool is_wsd(const RunConfig& c) {
  return c.train.lr_decay_style == DecayStyle::Wsd;
}

bool decays(const RunConfig& c) {
  return c.train.lr_decay_style != DecayStyle::Constant;
}

bool is_muon(const RunConfig& c) {
  return c.train.optimizer == TrainOptimizer::Muon;
}

bool saves_in_background(const RunConfig& c) {
  return c.checkpoint.async_save;
}

bool has_replays(const RunConfig& c) {
  return recomputes_anything(c.recompute);
}

// A plan file may say it, too.
bool may_swap(const RunConfig& c) {
  return c.swap.layer_input || c.recompute.plan_file;
}

bool checks_something(const RunConfig& c) {
  return c.recompute.checks == PlanChecks::Off || has_replays(c) || may_swap(c);
}

bool counts_something(const RunConfig& c) {
  return !c.recompute.stats || has_replays(c) || may_swap(c);
}

bool chooses_mtp(const RunConfig& c) {
  return c.recompute.mtp == MtpSelection::Include || has_replays(c);
}

bool loads(const RunConfig& c) {
  return c.checkpoint.load.has_value();
}

constexpr const char* kNeedsWsd = "lr_decay_style = WSD";
constexpr const char* kNeedsDecay = "another lr_decay_style than constant";
constexpr const char* kNeedsMuon = "optimizer = muon";
constexpr const char* kNeedsLoad = "--load";
constexpr const char* kNeedsRecompute = "something that is recomputed";

constexpr const char* kNeedsEither = "something that is recomputed or swapped";
constexpr const char* kNeedsSwap = "swap_layer_input or a plan file";

constexpr std::array<Unused, 32> kUnused{{
    {"lr_wsd_decay_iters", is_wsd, kNeedsWsd},
    {"lr_wsd_decay_style", is_wsd, kNeedsWsd},
    {"lr_decay_iters", decays, kNeedsDecay},
    {"min_lr", decays, kNeedsDecay},
    {"muon_momentum", is_muon, kNeedsMuon},
    {"muon_update_rms", is_muon, kNeedsMuon},
    {"muon_split_heads", is_muon, kNeedsMuon},
    {"async_save_policy", saves_in_background, "async_save"},
    {"allow_fallback_checkpoint", loads, kNeedsLoad},
    {"allow_setting_changes", loads, kNeedsLoad},
    {"finetune", loads, kNeedsLoad},
    {"load_optim", loads, kNeedsLoad},
    {"load_rng", loads, kNeedsLoad},
    {"mtp_loss_scaling_factor_decayed", has_mtp, "mtp_num_layers > 0"},
    {"mtp_loss_scaling_factor_decayed", decays, kNeedsDecay},
    {"dsa_indexer_loss_coeff", indexer_exists, kNeedsIndexer},
    {"indexer_teacher", indexer_exists, kNeedsIndexer},
    {"csa_attention", indexer_exists, kNeedsIndexer},
    {"indexer_loss", indexer_exists, kNeedsIndexer},
    {"dsa_indexer_loss_coeff", indexer_learns, kNeedsIndexerLoss},
    {"indexer_teacher", indexer_learns, kNeedsIndexerLoss},
    {"mtp_loss_scaling_factor", has_mtp, "mtp_num_layers > 0"},
    {"seq_aux_hash_layers", balances_hash_layers, "a hash layer and moe_aux_loss_coeff > 0"},
    {"eval_interval", validates, "valid_fraction > 0"},
    {"recompute_checks", checks_something, kNeedsEither},
    {"recompute_stats", counts_something, kNeedsEither},
    {"recompute_mtp", chooses_mtp, kNeedsRecompute},
    {"recompute_mtp", mtp_is_there_to_skip, "mtp_num_layers > 0"},
    {"offload_budget_mb", may_swap, kNeedsSwap},
    {"offload_folder", may_swap, kNeedsSwap},
    {"swap_prefetch_distance", may_swap, kNeedsSwap},
    {"swap_min_bytes", may_swap, kNeedsSwap},
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
    if (assigned.origin == kCheckpointOrigin) continue;
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
