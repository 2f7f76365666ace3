#include <cmath>
#include <map>

#include "support/gradcheck.h"
#include "support/tiny_model.h"
#include <gtest/gtest.h>

#include "lethe/base/random.h"
#include "lethe/core/byte_accounting.h"
#include "lethe/model/init.h"
#include "lethe/train/loss_factors.h"
#include "lethe/train/step.h"

// Training phases (model spec 8.3) and what a step sums over its micro-batches (9.3).
namespace lethe {
namespace {

Batch documents(const std::vector<uint64_t>& seeds, int64_t length) {
  Batch batch;
  for (const uint64_t seed : seeds) {
    Random random(seed);
    const size_t begin = batch.ids.size();
    for (int64_t t = 0; t < length; ++t)
      batch.ids.push_back(static_cast<int64_t>(random.uniform_below(128)));
    for (size_t t = begin + 1; t < batch.ids.size(); ++t) batch.labels.push_back(batch.ids[t]);
    batch.labels.push_back(kIgnoredLabel);
    batch.cu_seqlens.push_back(static_cast<int32_t>(batch.ids.size()));
  }
  return batch;
}

struct Phase {
  CsaAttention attention = CsaAttention::Sparse;
  IndexerLoss loss = IndexerLoss::Sparse;
  bool only_indexer = false;
};

struct Outcome {
  StepReport report;
  bool indexer_moved = false, all_indexer_moved = true;
  bool trunk_moved = false, bias_moved = false;
};

Outcome run_phase(const Phase& phase) {
  install_byte_accounting();
  const auto model = test::lively_model(test::tiny_a(), {}, 3);
  TrainConfig train;
  train.indexer_loss_coeff = 0.01;
  train.csa_attention = phase.attention;
  train.indexer_loss = phase.loss;
  train.train_only_indexer = phase.only_indexer;
  choose_trained(*model, train);
  Tensors before;
  for (size_t i = 0; i < model->params().size(); ++i)
    before.push_back(model->params().value(i).detach().clone());
  Optimizer optimizer(optimizer_groups(model->params(), train));
  const std::vector<Batch> batches{documents({1}, 64)};
  Outcome out{.report = run_step(*model, optimizer, batches, train, {1e-3, train.mtp_loss_coeff})};
  for (size_t i = 0; i < before.size(); ++i) {
    const ParamRow& row = model->params().row(i);
    const bool moved = !model->params().value(i).equal(before[i]);
    if (row.name.ends_with("expert_bias")) {
      out.bias_moved = out.bias_moved || moved;
    } else if (is_indexer_param(row)) {
      out.indexer_moved = out.indexer_moved || moved;
      out.all_indexer_moved = out.all_indexer_moved && moved;
    } else {
      out.trunk_moved = out.trunk_moved || moved;
    }
  }
  return out;
}

// With the loss off and only the indexer trained nothing would train; settings refuse it.
TEST(Phases, EveryCombinationMovesExactlyWhatItTrains) {
  for (const auto attention : {CsaAttention::Dense, CsaAttention::Sparse})
    for (const auto loss : {IndexerLoss::Off, IndexerLoss::Dense, IndexerLoss::Sparse})
      for (const bool only : {false, true}) {
        if (loss == IndexerLoss::Off && only) continue;
        const Outcome out = run_phase({attention, loss, only});
        const std::string what = fmt::format("attention {}, loss {}, only {}",
                                             static_cast<int>(attention),
                                             static_cast<int>(loss),
                                             only);
        EXPECT_EQ(out.report.loss_kl.has_value(), loss != IndexerLoss::Off) << what;
        EXPECT_EQ(out.indexer_moved, loss != IndexerLoss::Off) << what;
        EXPECT_EQ(out.all_indexer_moved, loss != IndexerLoss::Off) << what;
        EXPECT_EQ(out.trunk_moved, !only) << what;
        EXPECT_EQ(out.bias_moved, !only) << what;  // counts of forwards that train the router
        EXPECT_TRUE(std::isfinite(out.report.grad_norm) && out.report.grad_norm > 0) << what;
      }
}

TEST(Phases, TheMainLossDependsOnTheAttentionAndOnNothingElse) {
  std::map<CsaAttention, double> loss_of;
  for (const auto attention : {CsaAttention::Dense, CsaAttention::Sparse}) {
    loss_of[attention] = run_phase({attention, IndexerLoss::Off, false}).report.loss;
    for (const auto loss : {IndexerLoss::Dense, IndexerLoss::Sparse})
      for (const bool only : {false, true})
        EXPECT_EQ(run_phase({attention, loss, only}).report.loss, loss_of[attention]);
  }
  // 16 slots are visible at the end, 4 are kept.
  EXPECT_NE(loss_of[CsaAttention::Dense], loss_of[CsaAttention::Sparse]);
}

TEST(Phases, TheIndexersLossIsTheSameWhetherTheTrunkTrainsOrNot) {
  for (const auto attention : {CsaAttention::Dense, CsaAttention::Sparse}) {
    std::map<IndexerLoss, double> kl;
    for (const auto loss : {IndexerLoss::Dense, IndexerLoss::Sparse}) {
      kl[loss] = run_phase({attention, loss, false}).report.loss_kl.value();
      EXPECT_EQ(run_phase({attention, loss, true}).report.loss_kl.value(), kl[loss]);
      EXPECT_GT(kl[loss], 0);
    }
    EXPECT_NE(kl[IndexerLoss::Dense], kl[IndexerLoss::Sparse]);
  }
}

struct Biases {
  Tensors values;
  StepReport report;
};

Biases biases_after(const std::vector<Batch>& batches, int64_t steps) {
  install_byte_accounting();
  DeepseekV4 model(test::tiny_a(), {});
  TrainConfig train;
  train.indexer_loss_coeff = 0.01;
  train.router_bias_rate = 0.01;
  train.balance_loss_coeff = 0.5;
  initialize(model.config(), model.params(), 7);
  choose_trained(model, train);
  Optimizer optimizer(optimizer_groups(model.params(), train));
  Biases out;
  for (int64_t s = 0; s < steps; ++s)
    out.report =
        run_step(model, optimizer, batches, train, {/*learning_rate=*/0, train.mtp_loss_coeff});
  for (const at::Tensor& bias : model.router_biases())
    if (bias.defined()) out.values.push_back(bias.clone());
  return out;
}

TEST(GlobalBatch, TheRouterBiasCountsAllMicroBatchesTogether) {
  const std::vector<Batch> whole{documents({1, 2}, 32)},
      divided{documents({1}, 32), documents({2}, 32)};
  const Biases a = biases_after(whole, 1), b = biases_after(divided, 1);
  ASSERT_EQ(a.values.size(), 3u);  // two scored layers and the MTP block
  for (size_t i = 0; i < a.values.size(); ++i) {
    test::expect_bitwise(a.values[i], b.values[i], "bias " + std::to_string(i));
    EXPECT_FLOAT_EQ(a.values[i].abs().max().item<float>(), 0.01F);
  }
  // Neither micro-batch alone would have moved every bias the same way.
  const Biases first = biases_after({divided[0]}, 1), second = biases_after({divided[1]}, 1);
  bool first_differs = false, second_differs = false;
  for (size_t i = 0; i < a.values.size(); ++i) {
    first_differs = first_differs || !first.values[i].equal(a.values[i]);
    second_differs = second_differs || !second.values[i].equal(a.values[i]);
  }
  EXPECT_TRUE(first_differs && second_differs);
}

TEST(GlobalBatch, TheBalanceLossIsTheMeanOverSequencesHoweverTheyAreDivided) {
  const std::vector<Batch> whole{documents({1, 2}, 32)},
      divided{documents({1}, 32), documents({2}, 32)};
  const Biases a = biases_after(whole, 1), b = biases_after(divided, 1);
  EXPECT_NEAR(a.report.loss_balance.value(),
              b.report.loss_balance.value(),
              1e-6 * a.report.loss_balance.value());
}

TEST(GlobalBatch, TheBalanceLossGivesTheSameGradientHoweverItsSequencesAreDivided) {
  const ModelConfig config = test::tiny_a();
  TrainConfig train;
  train.indexer_loss_coeff = 0.01;
  train.balance_loss_coeff = 3;
  const auto sum_over = [&](const std::vector<Batch>& batches, double alpha) {
    train.balance_loss_coeff = alpha;
    const auto model = test::lively_model(config, {.float_type = ParamPlacement::Float::Fp64}, 3);
    const LossFactors factors =
        loss_factors(train, count_labels(batches, config.num_mtp), train.mtp_loss_coeff);
    Tensors sum;
    for (const Batch& b : batches) {
      const auto g = test::gradients(
          *model, make_micro_batch(b.ids, b.labels, b.cu_seqlens, config.ratios), factors);
      sum.resize(g.size());
      for (size_t i = 0; i < g.size(); ++i)
        if (g[i].defined()) sum[i] = sum[i].defined() ? sum[i] + g[i] : g[i];
    }
    return sum;
  };
  const std::vector<Batch> one{documents({1, 2}, 32)}, two{documents({1}, 32), documents({2}, 32)};
  const Tensors whole = sum_over(one, 3), divided = sum_over(two, 3), without = sum_over(one, 0);
  bool matters = false;
  for (size_t i = 0; i < whole.size(); ++i) {
    ASSERT_EQ(whole[i].defined(), divided[i].defined());
    if (!whole[i].defined()) continue;
    test::expect_close_rms(divided[i], whole[i], 1e-10, "gradient " + std::to_string(i), 1e-5);
    matters = matters || (whole[i] - without[i]).abs().max().item<double>() > 1e-4;
  }
  EXPECT_TRUE(matters);
}

}  // namespace
}  // namespace lethe
