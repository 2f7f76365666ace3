#include "lethe/config/settings_table_impl.h"

// Names of command-line spec 7.2 to 7.6 that wait for their work. A flag leaves this list when that
// work brings its row.
namespace lethe::detail {

namespace {

void add_parallel(SettingTable& t) {
  t.section("parallel", "Parallelism", command::kAll);
  t.not_built("leave it out: this build trains in one process",
              {"tensor-model-parallel-size",
               "sequence-parallel",
               "pipeline-model-parallel-size",
               "num-layers-per-virtual-pipeline-stage",
               "num-virtual-stages-per-pipeline-rank",
               "pipeline-model-parallel-layout",
               "decoder-first-pipeline-num-layers",
               "decoder-last-pipeline-num-layers",
               "context-parallel-size",
               "context-parallel-algo",
               "allgather-cp",
               "cp-halo",
               "cp-strict",
               "expert-model-parallel-size",
               "expert-tensor-parallel-size",
               "moe-token-dispatcher-type",
               "moe-fb-overlap",
               "balanced-moe-experts",
               "schedules-method",
               "use-distributed-optimizer",
               "zero-stage",
               "distributed-backend",
               "distributed-timeout-seconds",
               "distributed-timeout-minutes"});
  t.not_built("leave it out: there are no no-op layers; place layers with the pipeline layout",
              {"noop-layers"});
}

void add_memory(SettingTable& t) {
  t.section("memory", "Memory", command::kAll);
  t.not_built("leave it out: hyper-connections follow --dsa-kernel-backend",
              {"use-fused-mhc", "use-triton-mhc"});
  t.not_built("leave it out: the operator of the experts keeps no activation",
              {"recompute-activation-function", "recompute-activation-function-num-layers"});
  t.not_built("leave it out: this build keeps in memory what it does not recompute or swap",
              {"memory-budget",
               "pin-memory",
               "mtp-mem-efficient-logits",
               "swap-optimizer",
               "optimizer-cpu-offload",
               "overlap-cpu-optimizer-d2h-h2d"});
}

void add_checkpoint(SettingTable& t) {
  t.section("checkpoint", "Checkpoints", command::kAll);
  t.not_built("leave it out: a save in the background copies everything at once",
              {"async-save-staging-mb"});
  t.not_built("leave it out: a resume is bit for bit unless settings or threads are changed",
              {"require-bitwise-resume"});
  t.not_built("leave it out: this build trains in one process", {"no-shared-storage"});
  t.not_built("leave it out: this build reads its own checkpoints, whole",
              {"ref-load",
               "init-missing",
               "ignore-unexpected",
               "allow-lossy-import",
               "no-mmap",
               "load-workspace-mb",
               "cache-dir",
               "lock-timeout"});
  t.not_built("give the shape with --hf-config; weights of a hub checkpoint cannot be trained yet",
              {"hf-checkpoint"});
}

void add_export(SettingTable& t) {
  t.section("export", "Export", command::kAll);
  t.not_built("leave it out: this build writes fp32 tensors under hub names",
              {"export",
               "export-namespace",
               "export-precision",
               "export-scale-fmt",
               "export-scales",
               "export-shard-size",
               "export-mtp",
               "verify-export",
               "extra-high-precision",
               "extra-high-precision-layers-hf",
               "extra-high-precision-layers-megatron",
               "first-last-layers-bf16",
               "num-layers-at-start-in-bf16",
               "num-layers-at-end-in-bf16",
               "quant-compat",
               "allow-lossy-cast",
               "update-weight-buffer-size",
               "update-weight-max-unit"});
}

void add_replay(SettingTable& t) {
  t.section("replay", "Replay and precision", command::kAll);
  t.not_built("leave it out: this build does not replay recorded selections",
              {"use-routing-replay",
               "use-rollout-routing-replay",
               "use-indexer-replay",
               "use-rollout-indexer-replay",
               "replay-max-bytes",
               "replay-check"});
  t.not_built("leave it out: this build computes in fp32",
              {"fp8-format", "fp8-recipe", "train-fp8", "train-mxfp8"});
}

}  // namespace

void add_not_built_settings(SettingTable& t) {
  add_parallel(t);
  add_memory(t);
  add_checkpoint(t);
  add_export(t);
  add_replay(t);
}

}  // namespace lethe::detail
