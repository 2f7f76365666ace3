#include "lethe/config/settings_table_impl.h"

// Training checkpoints: command-line spec 4 and 7.5.
namespace lethe::detail {
namespace {

constexpr auto kCheckpoint = &RunConfig::checkpoint;
using C = CheckpointConfig;

void add_load(SettingTable& t) {
  t.section("checkpoint", "Going on from a checkpoint", command::kTrain, OnResume::Session);
  t.bind("load",
         kCheckpoint,
         &C::load,
         "Folder of checkpoints to go on from; it brings every setting that is not given.")
      .default_note("a new run")
      .note("not empty")
      .refine(refuse_empty);
  t.bind("allow-fallback-checkpoint",
         kCheckpoint,
         &C::allow_fallback,
         "When the newest checkpoint is damaged, go on from the newest whole one.");
  t.bind("allow-setting-changes",
         kCheckpoint,
         &C::allow_setting_changes,
         "Schedule, optimizer settings and losses may differ from the checkpoint's.");
  t.bind("finetune",
         kCheckpoint,
         &C::finetune,
         "Take only the weights: a new run that starts at step 0.");
  t.bind("load-optim", kCheckpoint, &C::load_optim, "Take the optimizer's state.");
  t.bind("load-rng", kCheckpoint, &C::load_rng, "Take the states of the random generators.");
}

void add_save(SettingTable& t) {
  t.section("checkpoint", "Saving checkpoints", command::kTrain, OnResume::Free);
  t.bind("save", kCheckpoint, &C::save, "Folder of the checkpoints.")
      .default_note("OUTPUT/checkpoints");
  t.bind("save-interval", kCheckpoint, &C::save_interval, "Steps between saves; 0 = at stops only.")
      .at_least(0);
  t.bind("save-retain-interval",
         kCheckpoint,
         &C::save_retain_interval,
         "Steps divisible by this stay for good; 0 = none.")
      .at_least(0)
      .note("a multiple of save_interval");
  t.bind("keep-last", kCheckpoint, &C::keep_last, "Newest checkpoints that stay.").at_least(1);
  t.bind("async-save", kCheckpoint, &C::async_save, "Write in the background from a copy.");
  t.bind_enum("async-save-policy",
              kCheckpoint,
              &C::async_save_policy,
              {"wait", "skip"},
              "A save that is due while one is under way waits, or is left out.");
  t.bind_enum("checkpoint-integrity",
              kCheckpoint,
              &C::integrity,
              {"crc32c", "sha256"},
              "Sums over the data: CRC-32C per tensor, or SHA-256 per file as well.");
  t.bind_enum("save-failure",
              kCheckpoint,
              &C::save_failure,
              {"continue", "fatal"},
              "After a save that failed (disk full): go on and say so, or stop.");
  t.bind("save-optim", kCheckpoint, &C::save_optim, "Save the optimizer's state.");
  t.bind("save-rng", kCheckpoint, &C::save_rng, "Save the states of the random generators.");
  t.constant("ckpt-format",
             std::string("lethe"),
             "Form of the checkpoints.",
             "bring checkpoints of other programs into the hub's form first")
      .choices({"lethe"}, {"torch", "torch_dist"});
}

}  // namespace

void add_checkpoint_settings(SettingTable& t) {
  add_load(t);
  add_save(t);
}

}  // namespace lethe::detail
