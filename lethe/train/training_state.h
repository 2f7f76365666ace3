#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "lethe/config/run_config.h"
#include "lethe/data/data_position.h"
#include "lethe/io/checkpoint_folder.h"
#include "lethe/model/deepseek_v4.h"
#include "lethe/optim/optimizer.h"
#include "lethe/train/process_facts.h"
#include "lethe/train/run_record.h"

namespace lethe {

/// Where a run stands between two steps, apart from its tensors (spec 6 4.1).
struct RunState {
  int64_t step = 0;             // optimizer steps done
  int64_t consumed_tokens = 0;  // of the training stream
  int64_t evaluated_step = -1;  // of the last evaluation; -1 = none yet
  double valid_loss = 0;        // its result
  DataPosition data;
  RecordMark record;

  bool operator==(const RunState&) const = default;
};

/// What else a checkpoint says about its run.
struct RunIdentity {
  std::string settings;                         // print_config() of the run
  std::string hub_kept = "{}";                  // keys of the user's config.json, for export
  std::map<std::string, std::string> deciding;  // deciding_settings() of the run
  ProcessFacts process;
};

/// The contents of one save. It refers to the tensors of model and optimizer: they must stay as
/// they are until CheckpointSaver::save has returned.
class StateToSave {
 public:
  StateToSave(const RunState& state,
              const RunIdentity& identity,
              const DeepseekV4& model,
              const Optimizer& optimizer,
              const CheckpointConfig& config);
  ~StateToSave();
  StateToSave(const StateToSave&) = delete;
  StateToSave& operator=(const StateToSave&) = delete;

  [[nodiscard]] const CheckpointParts& parts() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The newest checkpoint of the folder, proven (io/checkpoint_folder.h open_latest). A fallback to
/// an older one is logged.
[[nodiscard]] OpenedCheckpoint open_checkpoint(const std::filesystem::path& folder,
                                               bool allow_fallback);

/// What a checkpoint says about its run, before anything is made from it. CheckpointError
/// [E-CKPT-COMMON] when common.json lacks something.
[[nodiscard]] RunIdentity read_identity(const OpenedCheckpoint& checkpoint);

/// Copies the weights into the model. CheckpointError [E-CKPT-TENSOR] names what does not fit.
void load_weights(const OpenedCheckpoint& checkpoint, DeepseekV4& model);

/// Optimizer, random generators (where config asks for them) and the state of the run. The weights
/// must be loaded. With --allow-setting-changes the optimizer's state of parameters that were not
/// trained before begins anew, and that of parameters that no longer are is left behind.
/// CheckpointError [E-CKPT-PART] when the checkpoint was saved without one of them.
[[nodiscard]] RunState load_state(const OpenedCheckpoint& checkpoint,
                                  const CheckpointConfig& config,
                                  Optimizer& optimizer);

}  // namespace lethe
