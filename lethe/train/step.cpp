#include "lethe/train/step.h"

#include <algorithm>
#include <cmath>

#include "lethe/base/error.h"
#include "lethe/core/byte_accounting.h"
#include "lethe/ops/router_bias.h"
#include "lethe/optim/grad_norm.h"
#include "lethe/optim/group_parameters.h"
#include "lethe/optim/group_table.h"
#include "lethe/train/loss_factors.h"

namespace lethe {
namespace {

MicroBatch to_micro_batch(const Batch& batch, const ModelConfig& config) {
  return make_micro_batch(batch.ids, batch.labels, batch.cu_seqlens, config.ratios);
}

int64_t saved_activation_bytes() {
  const ByteReport now = bytes();
  return now.live - now.live_of(ByteCategory::Parameters) - now.live_of(ByteCategory::Optimizer) -
         now.live_of(ByteCategory::Gradients);
}

// The sums of one step, over its micro-batches.
struct StepSums {
  double main = 0, balance = 0;
  std::vector<double> mtp;
  bool balanced = false;
};

void add(StepSums& sums, const ModelOutput& out) {
  sums.main += out.main_sum.item<double>();
  sums.mtp.resize(out.mtp_sums.size());
  for (size_t k = 0; k < out.mtp_sums.size(); ++k) sums.mtp[k] += out.mtp_sums[k].item<double>();
  if (!out.balance.defined()) return;
  sums.balanced = true;
  sums.balance += out.balance.item<double>();
}

void fill_losses(StepReport& report,
                 const StepSums& sums,
                 const StepCounts& counts,
                 const RunTally& tally,
                 const LossFactors& factors,
                 const ModelConfig& config) {
  report.loss = counts.main > 0 ? sums.main / static_cast<double>(counts.main) : 0;
  if (!sums.mtp.empty()) {
    double mean = 0;
    for (size_t k = 0; k < sums.mtp.size(); ++k)
      if (counts.mtp[k] > 0) mean += sums.mtp[k] / static_cast<double>(counts.mtp[k]);
    report.loss_mtp = mean / static_cast<double>(sums.mtp.size());
  }
  if (sums.balanced) report.loss_balance = sums.balance;
  const auto indexers =
      std::count(config.ratios.begin(), config.ratios.begin() + config.num_layers, kCsaRatio);
  if (indexers == 0 || factors.indexer_loss == IndexerLoss::Off) return;
  double kl = 0;
  for (const double layer : tally.indexer_kl) kl += layer;
  report.loss_kl = kl / static_cast<double>(indexers * counts.tokens);
}

void check_finite(const ModelOutput& out) {
  const double total = out.total.item<double>(), main = out.main_sum.item<double>();
  LETHE_CHECK(NumericError,
              std::isfinite(total) && std::isfinite(main),
              "training: the loss must be finite, got a sum of {} (main loss {}); lower --lr or "
              "--clip-grad",
              total,
              main);
}

void update_router_biases(const DeepseekV4& model, const RunTally& tally, double rate) {
  const auto biases = model.router_biases();
  for (size_t i = 0; i < biases.size(); ++i)
    if (biases[i].defined() && tally.expert_counts[i].defined())
      ops::update_router_bias(biases[i], tally.expert_counts[i], rate);
}

// The model on the meta device, with its trained parameters chosen.
std::unique_ptr<DeepseekV4> shapes_only(const RunConfig& config) {
  auto model = std::make_unique<DeepseekV4>(
      config.model,
      ParamPlacement{.float_type = config.train.bf16 ? ParamPlacement::Float::Bf16
                                                     : ParamPlacement::Float::Fp32,
                     .device = ParamPlacement::Device::Meta});
  choose_trained(*model, config.train);
  return model;
}

}  // namespace

std::vector<ParameterGroup> optimizer_groups(const ParamStore& params, const TrainConfig& train) {
  return group_parameters(
      params,
      {.kind = train.optimizer == TrainOptimizer::Muon ? OptimizerKind::Muon : OptimizerKind::AdamW,
       .weight_decays = {.muon_matrices = train.weight_decay, .adamw_matrices = train.weight_decay},
       .adam_beta1 = train.adam_beta1,
       .adam_beta2 = train.adam_beta2,
       .adam_eps = train.adam_eps,
       .muon_momentum = train.muon_momentum,
       .muon_update_rms = train.muon_update_rms,
       .muon_split_heads = train.muon_split_heads});
}

void choose_trained(DeepseekV4& model, const TrainConfig& train) {
  const bool indexer_loss =
      train.indexer_loss != IndexerLoss::Off && train.indexer_loss_coeff.value_or(0) > 0;
  model.params().set_trained([&](const ParamRow& row) {
    return is_indexer_param(row) ? indexer_loss : !train.train_only_indexer;
  });
}

std::string optimizer_table(const RunConfig& config) {
  const auto model = shapes_only(config);
  return group_table_text(group_table(optimizer_groups(model->params(), config.train)));
}

SizePrediction predict_sizes(const RunConfig& config) {
  const auto model = shapes_only(config);
  const ParamStore& params = model->params();
  SizePrediction sizes;
  for (size_t i = 0; i < params.size(); ++i) {
    const at::Tensor& value = params.value(i);
    sizes.parameters += static_cast<int64_t>(value.nbytes());
    if (value.requires_grad()) sizes.gradients += value.numel() * int64_t{sizeof(float)};
  }
  for (const GroupLine& line : group_table(optimizer_groups(params, config.train)))
    sizes.optimizer += line.state_bytes();
  return sizes;
}

StepReport run_step(DeepseekV4& model,
                    Optimizer& optimizer,
                    std::span<const Batch> micro_batches,
                    const TrainConfig& train,
                    const StepSchedule& schedule) {
  const StepCounts counts = count_labels(micro_batches, model.config().num_mtp);
  const LossFactors factors = loss_factors(train, counts, schedule.mtp_weight);
  StepReport report{.learning_rate = schedule.learning_rate};
  RunTally tally = model.make_tally();
  StepSums sums;
  reset_peak();
  optimizer.drop_gradients();
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    MicroBatchTape tape(schedule.recompute, static_cast<int64_t>(i), schedule.swap);
    const MicroBatch micro = to_micro_batch(micro_batches[i], model.config());
    ModelOutput out = model.forward(micro, factors, tally, {}, tape.pass());
    report.saved_bytes = std::max(report.saved_bytes, saved_activation_bytes());
    tape.forward_done({.documents = micro.documents,
                       .balanced = factors.balance > 0,
                       .balances_hash_layers = factors.balance_hash_layers});
    if (schedule.trace != nullptr) schedule.trace->end_forward();
    check_finite(out);
    add(sums, out);
    out.total.backward();
    tape.backward_done(report);
  }
  expect_nothing_left(schedule.recompute);
  fill_losses(report, sums, counts, tally, factors, model.config());
  report.grad_norm = grad_norm(optimizer.groups());
  optimizer.step(schedule.learning_rate,
                 train.clip_grad > 0 ? clip_coefficient(report.grad_norm, train.clip_grad) : 1.0);
  // Above an indexer the scores carry gradients although no router trains.
  if (train.router_bias_rate > 0 && !train.train_only_indexer)
    update_router_biases(model, tally, train.router_bias_rate);
  const ByteReport now = bytes();
  report.live_bytes = now.live;
  report.peak_bytes = now.peak;
  report.at_peak = now.at_peak;
  return report;
}

double evaluate(const DeepseekV4& model, std::span<const Batch> batches) {
  const at::NoGradGuard no_grad;
  double sum = 0;
  int64_t count = 0;
  for (const Batch& batch : batches) {
    sum += model.main_loss_sum(to_micro_batch(batch, model.config())).item<double>();
    count += count_labels({&batch, 1}, 0).main;
  }
  return count > 0 ? sum / static_cast<double>(count) : 0.0;
}

}  // namespace lethe
