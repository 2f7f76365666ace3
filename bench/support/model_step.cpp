#include "bench/support/model_step.h"

#include <chrono>
#include <fstream>

#include "lethe/base/documents.h"
#include "lethe/base/error.h"
#include "lethe/base/random.h"
#include "lethe/config/hub_config.h"
#include "lethe/config/validate.h"
#include "lethe/core/byte_accounting.h"
#include "lethe/io/atomic_file.h"
#include "lethe/model/init.h"
#include "lethe/train/model_folder.h"
#include "lethe/train/step.h"

namespace lethe::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<int64_t> token_ids(const ModelStepOptions& o, int64_t vocab_size) {
  std::vector<int64_t> ids;
  if (o.ids.empty()) {
    Random random(o.seed);
    for (int64_t i = 0; i < o.seq; ++i)
      ids.push_back(static_cast<int64_t>(random.uniform_below(static_cast<uint64_t>(vocab_size))));
    return ids;
  }
  std::ifstream file(o.ids);
  for (int64_t id = 0; std::ssize(ids) < o.seq && file >> id;) ids.push_back(id);
  LETHE_CHECK(DataError,
              std::ssize(ids) == o.seq,
              "--ids: '{}' must hold {} token ids, got {}; write more or lower --seq",
              o.ids,
              o.seq,
              ids.size());
  return ids;
}

// One document; every token predicts the next one.
MicroBatch one_row(const ModelStepOptions& o, const ModelConfig& config) {
  LETHE_CHECK(ConfigError, o.seq >= 2, "--seq: must be at least 2, got {}; raise it", o.seq);
  const std::vector<int64_t> ids = token_ids(o, config.vocab_size);
  std::vector<int64_t> labels(ids.begin() + 1, ids.end());
  labels.push_back(kIgnoredLabel);
  const std::vector<int32_t> cu{0, static_cast<int32_t>(o.seq)};
  return make_micro_batch(ids, labels, cu, config.ratios);
}

std::unique_ptr<DeepseekV4> make_model(const ModelStepOptions& o) {
  if (!o.model.empty()) return read_model_folder(o.model, "model.safetensors", {});
  const HubConfig hub = parse_hub_config(read_text_file(o.config), o.config);
  validate(hub.model, o.config);
  auto model = std::make_unique<DeepseekV4>(hub.model, ParamPlacement());
  initialize(hub.model, model->params(), o.seed);
  return model;
}

}  // namespace

ModelStep::ModelStep(const ModelStepOptions& o)
    : model_(make_model(o)),
      batch_(one_row(o, model_->config())),
      offload_folder_(o.offload_folder) {
  TrainConfig train;
  train.indexer_loss = o.indexer_loss ? IndexerLoss::Sparse : IndexerLoss::Off;
  train.indexer_loss_coeff = o.indexer_loss ? 1.0 : 0.0;
  choose_trained(*model_, train);
  factors_.main = 1.0 / static_cast<double>(o.seq - 1);
  factors_.indexer_loss = train.indexer_loss;
  factors_.indexer = 1.0 / static_cast<double>(o.seq);
}

double ModelStep::step(OpProfile* profile, const RecomputePlan& plan, RecomputeTrace* trace) {
  if (plan.swaps() && !tier_)
    tier_ = make_swap_tier(
        {.offload_folder = offload_folder_}, model_->config().num_layers, /*checked=*/false);
  RunTally tally = model_->make_tally();
  const int64_t before = bytes().live;
  const auto start = Clock::now();
  if (profile != nullptr) profile->begin("forward");
  const OperatorFacts facts{.indexer_loss = factors_.indexer_loss != IndexerLoss::Off};
  const RecomputeChoice choice{
      .subject = PlanSubject::of(model_->config(), facts), .plan = plan, .units = {}};
  MicroBatchTape tape(&choice, 0, tier_ ? &*tier_ : nullptr);
  const ModelOutput out = model_->forward(batch_, factors_, tally, {}, tape.pass());
  forward_seconds_ = seconds_since(start);
  saved_bytes_ = bytes().live - before;
  tape.forward_done({.documents = batch_.documents});
  if (trace != nullptr) trace->end_forward();
  if (profile != nullptr) profile->begin("backward");
  out.total.backward();
  const double seconds = seconds_since(start);
  StepReport report;
  tape.backward_done(report);
  loss_ = out.main_sum.item<double>() * factors_.main;
  replay_seconds_ = report.recompute ? static_cast<double>(report.recompute->replay_ns) * 1e-9 : 0;
  regions_ = report.recompute ? std::move(report.recompute->regions) : std::vector<RegionReport>();
  const ParamStore& params = model_->params();
  for (size_t i = 0; i < params.size(); ++i) params.value(i).mutable_grad().reset();
  return seconds;
}

}  // namespace lethe::bench
