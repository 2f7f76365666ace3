#include "lethe/config/settings_table_impl.h"

// Flags of training and of the small commands: command-line spec 7.1, 7.2 and 7.6.
namespace lethe::detail {
namespace {

constexpr auto kTrain = &RunConfig::train;
using T = TrainConfig;

void add_data(SettingTable& t) {
  t.section("data", "Data", command::kTrain);
  t.bind("data",
         kTrain,
         &T::data,
         "What to train on: a text file, a folder of them, the prefix NAME of a data set "
         "(lethe data prepare), or a blend \"WEIGHT PATH WEIGHT PATH ...\".")
      .default_note("the bundled Shakespeare text")
      .on_resume(OnResume::Free);
  t.bind_enum("long-documents",
              kTrain,
              &T::long_documents,
              {"auto", "split", "error"},
              "Documents longer than a row: cut into rows, or an error; auto = an error for data "
              "with a loss mask.");
  t.bind("valid-fraction", kTrain, &T::valid_fraction, "Share of the text kept for validation.")
      .at_least(0)
      .below(1)
      .note("0 = no validation");
  t.bind("seq-length", kTrain, &T::seq_length, "Tokens per row.")
      .at_least(1)
      .note("<= max_position_embeddings");
  t.bind("micro-batch-size", kTrain, &T::micro_batch_size, "Rows per forward and backward.")
      .at_least(1);
  t.bind("global-batch-size", kTrain, &T::global_batch_size, "Rows per step.")
      .at_least(1)
      .note("a multiple of micro_batch_size");
}

void add_run(SettingTable& t) {
  t.section("train", "Run", command::kTrain, OnResume::Free);
  t.bind("output", kTrain, &T::output, "Folder of the run: record, model, report.")
      .note("not empty")
      .refine(refuse_empty);
  t.bind("overwrite", kTrain, &T::overwrite, "Replace an earlier run, or data set, of that name.")
      .on_resume(OnResume::Session)
      .commands(command::kTrain | command::kPrepare);
  t.rows().back().set = [](RunConfig& c, const SettingValue& value) {
    c.train.overwrite = c.prepare.overwrite = std::get<bool>(value);
  };
  t.bind("train-iters", kTrain, &T::train_iters, "Steps.")
      .required()
      .at_least(1)
      .on_resume(OnResume::Changeable);
  t.bind("max-seconds", kTrain, &T::max_seconds, "Save and stop after this time; 0 = no limit.")
      .at_least(0)
      .on_resume(OnResume::Session);
  t.bind("exit-interval",
         kTrain,
         &T::exit_interval,
         "Save and stop after a step divisible by this; 0 = no.")
      .at_least(0)
      .on_resume(OnResume::Session);
  t.bind("eval-interval",
         kTrain,
         &T::eval_interval,
         "Steps between evaluations; 0 = at the end only.")
      .at_least(0);
  t.bind("eval-iters", kTrain, &T::eval_iters, "Microbatches per evaluation.").at_least(1);
  t.bind("log-interval", kTrain, &T::log_interval, "Steps between progress lines.").at_least(1);
  t.bind("tensorboard", kTrain, &T::tensorboard, "Event files in OUTPUT/tensorboard.");
  t.bind("seed", kTrain, &T::seed, "Seed of initialisation, data order and generation.")
      .at_least(0)
      .on_resume(OnResume::Same)
      .commands(command::kTrain | command::kGenerate);
  t.rows().back().set = [](RunConfig& c, const SettingValue& value) {
    c.train.seed = c.generate.seed = std::get<int64_t>(value);
  };
  t.row("threads", SettingType::Int, SettingStatus::Active, "CPU threads; 0 = all.")
      .at_least(0)
      .commands(command::kTrain | command::kGenerate | command::kCompare);
  Setting& threads = t.rows().back();
  threads.get = [](const RunConfig& c) -> std::optional<SettingValue> { return c.threads; };
  threads.set = [](RunConfig& c, const SettingValue& value) {
    c.threads = std::get<int64_t>(value);
  };
}

void add_optimizer(SettingTable& t) {
  t.section("train", "Optimizer", command::kTrain, OnResume::Changeable);
  t.bind_enum("optimizer",
              kTrain,
              &T::optimizer,
              {"adamw", "muon"},
              "Update rule of the matrices; vectors, embedding and heads are AdamW's.")
      .on_resume(OnResume::Same);
  t.bind("bf16",
         kTrain,
         &T::bf16,
         "Store parameters as bfloat16 beside float32 masters; what must stay float32 does.")
      .on_resume(OnResume::Same);
  t.bind("lr", kTrain, &T::lr, "Peak learning rate.").required().above(0);
  t.bind("min-lr", kTrain, &T::min_lr, "Learning rate of the last step.").at_least(0).note("<= lr");
  t.bind_enum("lr-decay-style",
              kTrain,
              &T::lr_decay_style,
              {"constant", "linear", "cosine", "WSD"},
              "From lr to min_lr after the warm-up; WSD stays at lr until its decay.");
  t.bind("lr-decay-iters",
         kTrain,
         &T::lr_decay_iters,
         "Step at which min_lr is reached; 0 = train_iters.")
      .at_least(0)
      .note("> lr_warmup_iters");
  t.bind("lr-wsd-decay-iters", kTrain, &T::lr_wsd_decay_iters, "Steps of WSD's decay.")
      .at_least(0)
      .note(">= 1 for WSD");
  t.bind_enum("lr-wsd-decay-style",
              kTrain,
              &T::lr_wsd_decay_style,
              {"linear", "cosine", "exponential"},
              "Course of WSD's decay.");
  t.bind("lr-warmup-iters", kTrain, &T::lr_warmup_iters, "Steps of linear warm-up.")
      .at_least(0)
      .note("< train_iters");
  t.bind("weight-decay", kTrain, &T::weight_decay, "Decay of parameters of two or more dimensions.")
      .at_least(0);
  t.bind("adam-beta1", kTrain, &T::adam_beta1, "Decay of the first moment.").at_least(0).below(1);
  t.bind("adam-beta2", kTrain, &T::adam_beta2, "Decay of the second moment.").at_least(0).below(1);
  t.bind("adam-eps", kTrain, &T::adam_eps, "Added to the root of the second moment.").above(0);
  t.bind("muon-momentum", kTrain, &T::muon_momentum, "Decay of Muon's momentum.")
      .at_least(0)
      .below(1);
  t.bind("muon-update-rms", kTrain, &T::muon_update_rms, "Root mean square of Muon's update.")
      .above(0);
  t.bind("muon-split-heads",
         kTrain,
         &T::muon_split_heads,
         "Muon works on each query head's rows on their own.");
  t.bind("clip-grad", kTrain, &T::clip_grad, "Bound of the gradient norm; 0 = off.").at_least(0);
}

void add_losses(SettingTable& t) {
  t.section("train", "Losses", command::kTrain, OnResume::Changeable);
  t.bind("dsa-indexer-loss-coeff",
         kTrain,
         &T::indexer_loss_coeff,
         "Weight of the indexer's KL loss; 0 freezes the indexer.")
      .alias({"indexer-loss-coeff"})
      .at_least(0)
      .note("must be given when a ratio-4 layer is trained");
  t.bind_enum("indexer-teacher",
              kTrain,
              &T::indexer_teacher,
              {"joint", "conditional"},
              "Distribution that the indexer learns.");
  t.bind_enum("csa-attention",
              kTrain,
              &T::csa_attention,
              {"dense", "sparse"},
              "Slots that a ratio-4 layer reads: all visible ones or the top-k.");
  t.bind_enum("indexer-loss",
              kTrain,
              &T::indexer_loss,
              {"off", "dense", "sparse"},
              "Slots that the KL loss runs over.");
  t.bind("train-only-indexer", kTrain, &T::train_only_indexer, "Freeze everything but the indexer.")
      .note("needs a ratio-4 layer and the indexer's loss");
  t.bind("mtp-loss-scaling-factor", kTrain, &T::mtp_loss_coeff, "Weight of the MTP losses' mean.")
      .at_least(0);
  t.bind("mtp-loss-scaling-factor-decayed",
         kTrain,
         &T::mtp_loss_coeff_decayed,
         "Weight of the MTP losses from the first step of the learning rate's decay.")
      .default_note("mtp_loss_scaling_factor")
      .at_least(0);
  t.bind("moe-aux-loss-coeff",
         kTrain,
         &T::balance_loss_coeff,
         "Weight of the sequence-wise balance loss.")
      .at_least(0);
  t.bind(
      "seq-aux-hash-layers", kTrain, &T::balance_hash_layers, "Balance loss in hash layers too.");
  t.bind("moe-router-bias-update-rate",
         kTrain,
         &T::router_bias_rate,
         "Step of the router bias; 0 freezes it.")
      .at_least(0);
  t.constant("moe-router-freeze-gate",
             false,
             "Router weights are not trained.",
             "not built yet; leave it out");
  t.constant("freeze-e-score-correction-bias",
             false,
             "The router bias stays as it is.",
             "use --moe-router-bias-update-rate 0");
}

}  // namespace

void add_train_settings(SettingTable& t) {
  add_data(t);
  add_run(t);
  add_optimizer(t);
  add_losses(t);
}

}  // namespace lethe::detail
