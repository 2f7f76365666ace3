#include "lethe/train/training_state.h"

#include <algorithm>
#include <bit>
#include <mutex>

#include <nlohmann/json.hpp>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/zeros_like.h>

#include "lethe/base/error.h"
#include "lethe/base/log.h"
#include "lethe/base/version.h"
#include "lethe/checkpoint/tensor_chunks.h"
#include "lethe/config/contract_table.h"
#include "lethe/core/byte_accounting.h"

namespace lethe {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kWeights = "w-00000-of-00001.safetensors";
constexpr const char* kOptimizer = "o-00000-of-00001.safetensors";
constexpr const char* kRandom = "r-00000-of-00001.safetensors";
constexpr const char* kGenerator = "cpu_generator";

std::string state_name(const std::string& kind, const std::string& parameter) {
  return kind + "." + parameter;
}

at::Tensor generator_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

Json updates_json(const Optimizer& optimizer) {
  Json out = Json::object();
  for (const UpdateCount& count : optimizer.update_counts()) out[count.parameter] = count.updates;
  return out;
}

std::string common_text(const RunState& s,
                        const RunIdentity& identity,
                        const Optimizer& optimizer) {
  Json common{
      {"step", s.step},
      {"schedule", {{"step", s.step}, {"consumed_tokens", s.consumed_tokens}}},
      {"last_eval",
       {{"step", s.evaluated_step}, {"valid_loss_bits", std::bit_cast<uint64_t>(s.valid_loss)}}},
      {"data", Json::parse(s.data.to_json())},
      {"record", {{"bytes", s.record.num_bytes}, {"crc32c", s.record.crc}}},
      {"threads", identity.process.threads},
      {"kernels", identity.process.kernels},
      {"hub_kept", identity.hub_kept},
      {"updates", updates_json(optimizer)},
      {"deciding", identity.deciding},
      {"settings", identity.settings}};
  // A path may be no UTF-8; better a replaced letter than a run that cannot be saved.
  return common.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// common.json, whose bytes are proven by the manifest: what is missing was never written.
class Common {
 public:
  explicit Common(const OpenedCheckpoint& checkpoint)
      : where_((checkpoint.folder() / "common.json").string()) {
    root_ = Json::parse(checkpoint.common(), nullptr, /*allow_exceptions=*/false);
  }

  template <class T>
  T get(const char* path) const {
    try {
      return root_.at(Json::json_pointer(path)).get<T>();
    } catch (const Json::exception& error) {
      fail<CheckpointError>(
          "{} [E-CKPT-COMMON]: must say {}, got '{}'; it was written by another "
          "program",
          where_,
          path,
          error.what());
    }
  }

  std::string text_of(const char* path) const { return get<Json>(path).dump(); }

 private:
  std::string where_;
  Json root_;
};

bool has_file(const OpenedCheckpoint& checkpoint, const char* name) {
  for (const FileEntry& file : checkpoint.manifest().files)
    if (file.name == name) return true;
  return false;
}

void expect_part(const OpenedCheckpoint& checkpoint, const char* name, const char* flag) {
  LETHE_CHECK(CheckpointError,
              has_file(checkpoint, name),
              "{} [E-CKPT-PART]: must hold {}, got a checkpoint that was saved without it; go on "
              "without it by {}",
              checkpoint.folder().string(),
              name,
              flag);
}

// State of a parameter that was not trained before: as at the first step of a run.
at::Tensor fresh_state(const StateTensor& own) {
  return own.kind == "master" ? own.value.clone() : at::zeros_like(own.value);
}

// changes: parameters that were trained and no longer are, or the reverse, are not an error.
void load_optimizer(const OpenedCheckpoint& checkpoint,
                    const Common& common,
                    bool changes,
                    Optimizer& optimizer) {
  expect_part(checkpoint, kOptimizer, "--no-load-optim");
  const SafetensorsFile& file = checkpoint.file(kOptimizer);
  const auto updates = common.get<std::map<std::string, int64_t>>("/updates");
  std::vector<StateTensor> state;
  std::vector<std::string> names;
  std::vector<UpdateCount> counts;
  for (const UpdateCount& own : optimizer.update_counts()) {
    const auto found = updates.find(own.parameter);
    counts.push_back({own.parameter, found == updates.end() ? 0 : found->second});
  }
  for (const StateTensor& own : optimizer.state()) {
    names.push_back(state_name(own.kind, own.parameter));
    if (changes && !updates.contains(own.parameter)) {
      state.push_back({own.parameter, own.kind, fresh_state(own)});
      continue;
    }
    state.push_back({own.parameter, own.kind, at::empty_like(own.value)});
    read_chunk(file, names.back(), state.back().value);
  }
  if (!changes) expect_only(file, names);
  optimizer.restore(state, counts);
  const auto unknown = std::count_if(counts.begin(), counts.end(), [&](const UpdateCount& count) {
    return !updates.contains(count.parameter);
  });
  if (unknown > 0)
    log_info("{} parameter(s) were not trained before: their optimizer state begins anew", unknown);
}

void load_random(const OpenedCheckpoint& checkpoint) {
  expect_part(checkpoint, kRandom, "--no-load-rng");
  const at::Tensor state = at::empty_like(generator_state());
  read_chunk(checkpoint.file(kRandom), kGenerator, state);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace

struct StateToSave::Impl {
  CheckpointParts parts;
  at::Tensor generator;  // its bytes are referred to
};

StateToSave::StateToSave(const RunState& state,
                         const RunIdentity& identity,
                         const DeepseekV4& model,
                         const Optimizer& optimizer,
                         const CheckpointConfig& config)
    : impl_(new Impl) {
  CheckpointParts& parts = impl_->parts;
  parts.step = state.step;
  parts.contract_version = kContractVersion;
  parts.writer = version();
  parts.layout = {{"tp", 1}, {"pp", 1}, {"ep", 1}, {"cp", 1}, {"dp", 1}};
  parts.common = common_text(state, identity, optimizer);
  parts.sha256 = config.integrity == SaveIntegrity::Sha256;
  CheckpointParts::File& weights = parts.files.emplace_back();
  weights.name = kWeights;
  for (size_t i = 0; i < model.params().size(); ++i)
    weights.tensors.push_back(chunk_of(model.params().row(i).name, model.params().value(i)));
  if (config.save_optim) {
    CheckpointParts::File& file = parts.files.emplace_back();
    file.name = kOptimizer;
    for (const StateTensor& s : optimizer.state())
      file.tensors.push_back(chunk_of(state_name(s.kind, s.parameter), s.value));
  }
  if (config.save_rng) {
    impl_->generator = generator_state();
    CheckpointParts::File& file = parts.files.emplace_back();
    file.name = kRandom;
    file.tensors.push_back(chunk_of(kGenerator, impl_->generator));
  }
}

StateToSave::~StateToSave() = default;

const CheckpointParts& StateToSave::parts() const {
  return impl_->parts;
}

OpenedCheckpoint open_checkpoint(const std::filesystem::path& folder, bool allow_fallback) {
  std::string message;
  OpenedCheckpoint opened = open_latest(folder, kContractVersion, allow_fallback, message);
  if (!message.empty()) log_warn("{}", message);
  return opened;
}

RunIdentity read_identity(const OpenedCheckpoint& checkpoint) {
  const Common common(checkpoint);
  return {.settings = common.get<std::string>("/settings"),
          .hub_kept = common.get<std::string>("/hub_kept"),
          .deciding = common.get<std::map<std::string, std::string>>("/deciding"),
          .process = {.threads = common.get<int>("/threads"),
                      .kernels = common.get<std::string>("/kernels")}};
}

void load_weights(const OpenedCheckpoint& checkpoint, DeepseekV4& model) {
  const SafetensorsFile& file = checkpoint.file(kWeights);
  std::vector<std::string> names;
  for (size_t i = 0; i < model.params().size(); ++i) {
    names.push_back(model.params().row(i).name);
    read_chunk(file, names.back(), model.params().value(i));
  }
  expect_only(file, names);
}

RunState load_state(const OpenedCheckpoint& checkpoint,
                    const CheckpointConfig& config,
                    Optimizer& optimizer) {
  const Common common(checkpoint);
  if (config.load_optim)
    load_optimizer(checkpoint, common, config.allow_setting_changes, optimizer);
  else
    optimizer.copy_masters();
  if (config.load_rng) load_random(checkpoint);
  return {.step = common.get<int64_t>("/step"),
          .consumed_tokens = common.get<int64_t>("/schedule/consumed_tokens"),
          .evaluated_step = common.get<int64_t>("/last_eval/step"),
          .valid_loss = std::bit_cast<double>(common.get<uint64_t>("/last_eval/valid_loss_bits")),
          .data = DataPosition::from_json(common.text_of("/data")),
          .record = {.num_bytes = common.get<int64_t>("/record/bytes"),
                     .crc = common.get<uint32_t>("/record/crc32c")}};
}

}  // namespace lethe
