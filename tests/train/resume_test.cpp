#include <cstring>
#include <filesystem>
#include <sstream>

#include "support/expect_error.h"
#include "support/temp_folder.h"
#include "support/tiny_configs.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lethe/base/error.h"
#include "lethe/base/random.h"
#include "lethe/config/settings_text.h"
#include "lethe/core/byte_accounting.h"
#include "lethe/io/atomic_file.h"
#include "lethe/io/folder_lock.h"
#include "lethe/train/trainer.h"
#include "lethe/train/training_state.h"

// A run of 2 N steps equals N steps, a resume and N more steps: bit for bit.
namespace lethe {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSteps = 6;

// Documents of many lengths: some longer than a row, some packed.
void write_text(const fs::path& folder) {
  Random random(3);
  for (int file = 0; file < 12; ++file) {
    std::string text;
    const uint64_t length = 20 + random.uniform_below(file % 3 == 0 ? 300 : 40);
    for (uint64_t i = 0; i < length; ++i)
      text += static_cast<char>('a' + static_cast<int>(random.uniform_below(20)));
    write_file_atomically(folder / ("text" + std::to_string(10 + file)), text);
  }
}

RunConfig run_config(const fs::path& folder, const std::string& name) {
  RunConfig config;
  config.model = test::tiny_a();
  config.model.vocab_size = 256;
  TrainConfig& t = config.train;
  t.data = (folder / "text").string();
  t.output = (folder / name).string();
  t.valid_fraction = 0.2;
  t.seq_length = 32;
  t.micro_batch_size = 1;
  t.global_batch_size = 1;
  t.train_iters = kSteps;
  t.eval_interval = 2;
  t.eval_iters = 1;
  t.lr = 1e-2;
  t.lr_warmup_iters = 2;
  t.indexer_loss_coeff = 0.01;
  t.mtp_loss_coeff_decayed = 0.1;
  config.checkpoint.save_interval = 2;
  config.checkpoint.keep_last = 10;
  return config;
}

TrainResult train(RunConfig config, const fs::path& load = {}) {
  install_byte_accounting();
  TrainRequest request{
      .config = config, .settings_text = "seed = 1234\n", .settings = deciding_settings(config)};
  if (!load.empty()) {
    request.config.checkpoint.load = load.string();
    request.checkpoint = open_checkpoint(load, false);
  }
  std::ostringstream out;
  Trainer trainer(std::move(request), out);
  return trainer.run();
}

using Json = nlohmann::ordered_json;

std::vector<Json> record_of(const fs::path& run) {
  std::vector<Json> lines;
  std::istringstream text(read_text_file(run / "run.jsonl"));
  for (std::string line; std::getline(text, line);) {
    Json json = Json::parse(line);
    for (const char* time : {"tokens_per_second", "seconds"}) json.erase(time);
    lines.push_back(std::move(json));
  }
  return lines;
}

// Every byte of the newest checkpoints: weights, optimizer, generators; and what common.json says.
void expect_same_checkpoints(const fs::path& a, const fs::path& b) {
  const std::string latest = read_text_file(a / "LATEST");
  ASSERT_EQ(latest, read_text_file(b / "LATEST"));
  const std::string step = latest.substr(0, latest.size() - 1);
  for (const char* file : {"w-00000-of-00001.safetensors",
                           "o-00000-of-00001.safetensors",
                           "r-00000-of-00001.safetensors"}) {
    const std::string left = read_text_file(a / step / file),
                      right = read_text_file(b / step / file);
    ASSERT_EQ(left.size(), right.size()) << file;
    EXPECT_EQ(std::memcmp(left.data(), right.data(), left.size()), 0) << file;
  }
  Json left = Json::parse(read_text_file(a / step / "common.json")),
       right = Json::parse(read_text_file(b / step / "common.json"));
  for (Json* common : {&left, &right}) (*common)["record"].erase("crc32c");  // times are in there
  for (Json* common : {&left, &right}) (*common)["record"].erase("bytes");
  EXPECT_EQ(left, right);
}

struct Case {
  const char* name;
  TrainOptimizer optimizer;
  int64_t global_batch;
  bool async, bf16;
};

class Resume : public ::testing::TestWithParam<Case> {};

TEST_P(Resume, EqualsTheUninterruptedRunBitForBit) {
  const Case& c = GetParam();
  const test::TempFolder folder;
  fs::create_directory(folder / "text");
  write_text(folder / "text");
  RunConfig whole = run_config(folder.path(), "whole"),
            halves = run_config(folder.path(), "halves");
  for (RunConfig* config : {&whole, &halves}) {
    config->train.optimizer = c.optimizer;
    config->train.global_batch_size = c.global_batch;
    config->train.bf16 = c.bf16;
    config->checkpoint.async_save = c.async;
  }
  const TrainResult uninterrupted = train(whole);
  EXPECT_EQ(uninterrupted.reason, "finished");

  halves.train.exit_interval = kSteps / 2;  // no multiple of the save interval
  const TrainResult first = train(halves);
  EXPECT_EQ(first.reason, "exit-interval");
  EXPECT_EQ(first.steps, kSteps / 2);
  halves.train.exit_interval = 0;
  const TrainResult second = train(halves, folder / "halves/checkpoints");
  EXPECT_EQ(second.steps, kSteps);

  EXPECT_EQ(std::memcmp(&uninterrupted.valid_loss, &second.valid_loss, sizeof(double)), 0);
  expect_same_checkpoints(folder / "whole/checkpoints", folder / "halves/checkpoints");
  EXPECT_EQ(read_text_file(folder / "whole/model/model.safetensors"),
            read_text_file(folder / "halves/model/model.safetensors"));
  const std::vector<Json> left = record_of(folder / "whole"), right = record_of(folder / "halves");
  ASSERT_EQ(left.size(), right.size());
  for (size_t i = 0; i < left.size(); ++i) EXPECT_EQ(left[i], right[i]) << i;
}

INSTANTIATE_TEST_SUITE_P(
    Runs,
    Resume,
    ::testing::Values(Case{"adamw", TrainOptimizer::AdamW, 1, false, false},
                      Case{"adamw_async_4", TrainOptimizer::AdamW, 4, true, false},
                      Case{"muon_async", TrainOptimizer::Muon, 1, true, false},
                      Case{"muon_4", TrainOptimizer::Muon, 4, false, false},
                      Case{"muon_bf16_async", TrainOptimizer::Muon, 1, true, true}),
    [](const auto& one) { return one.param.name; });

class TrainerFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(folder_ / "text");
    write_text(folder_ / "text");
  }

  RunConfig config(const std::string& name) { return run_config(folder_.path(), name); }

  test::TempFolder folder_;
};

TEST_F(TrainerFolder, TheStepRecordsSplitTheirPeakToTheByte) {
  train(config("run"));
  size_t steps = 0;
  for (const Json& line : record_of(folder_ / "run")) {
    if (line["event"] != "step") continue;
    int64_t sum = 0;
    for (const auto& [category, bytes] : line["peak_by"].items()) sum += bytes.get<int64_t>();
    EXPECT_EQ(sum, line["peak_bytes"].get<int64_t>());
    for (const char* category : {"parameters", "gradients", "optimizer", "activations"})
      EXPECT_GT(line["peak_by"][category].get<int64_t>(), 0) << category;
    ++steps;
  }
  EXPECT_EQ(steps, static_cast<size_t>(kSteps));
}

TEST_F(TrainerFolder, ANewRunDoesNotTouchAnEarlierOne) {
  train(config("run"));
  const std::string record = read_text_file(folder_ / "run/run.jsonl");
  test::expect_error<ConfigError>([&] { train(config("run")); },
                                  {"--output", "run.jsonl", "--load", "--overwrite"});
  RunConfig other = config("other");
  other.checkpoint.save = (folder_ / "run/checkpoints").string();
  test::expect_error<ConfigError>([&] { train(other); }, {"--save", "step-0000000006", "--load"});
  EXPECT_EQ(read_text_file(folder_ / "run/run.jsonl"), record);
  RunConfig again = config("run");
  again.train.overwrite = true;
  train(again);
  EXPECT_EQ(record_of(folder_ / "run").back()["reason"], "finished");
}

TEST_F(TrainerFolder, TwoTrainersOnOneFolderAreRefused) {
  fs::create_directory(folder_ / "run");
  const FolderLock lock(folder_ / "run");
  test::expect_error<DataError>([&] { train(config("run")); }, {"run", "process"});
  EXPECT_FALSE(fs::exists(folder_ / "run/run.jsonl"));
}

TEST_F(TrainerFolder, ACheckpointOfAnotherModelNamesTheTensor) {
  train(config("run"));
  RunConfig wider = config("run");
  wider.model.expert_width = 48;
  test::expect_error<CheckpointError>([&] { train(wider, folder_ / "run/checkpoints"); },
                                      {"[E-CKPT-TENSOR]", "experts"});
  RunConfig muon = config("run");
  muon.train.optimizer = TrainOptimizer::Muon;
  test::expect_error<CheckpointError>([&] { train(muon, folder_ / "run/checkpoints"); },
                                      {"[E-CKPT-TENSOR]", "momentum"});
}

TEST_F(TrainerFolder, ACheckpointWithoutTheOptimizerSaysSo) {
  RunConfig bare = config("run");
  bare.checkpoint.save_optim = bare.checkpoint.save_rng = false;
  bare.train.exit_interval = 2;
  train(bare);
  bare.train.exit_interval = 0;
  const fs::path saved = folder_ / "run/checkpoints";
  test::expect_error<CheckpointError>([&] { train(bare, saved); },
                                      {"[E-CKPT-PART]", "--no-load-optim"});
  bare.checkpoint.load_optim = false;
  test::expect_error<CheckpointError>([&] { train(bare, saved); },
                                      {"[E-CKPT-PART]", "--no-load-rng"});
  bare.checkpoint.load_rng = false;
  EXPECT_EQ(train(bare, saved).steps, kSteps);
}

TEST_F(TrainerFolder, FinetuneTakesTheWeightsAndBeginsAtStepZero) {
  train(config("run"));
  RunConfig tuned = config("tuned");
  tuned.checkpoint.finetune = true;
  tuned.train.train_iters = 1;
  tuned.train.lr = 1e-30;  // the weights stay what they were
  tuned.train.min_lr = 0;
  tuned.train.lr_warmup_iters = 0;
  tuned.train.router_bias_rate = 0;
  EXPECT_EQ(train(tuned, folder_ / "run/checkpoints").steps, 1);
  EXPECT_EQ(read_text_file(folder_ / "tuned/model/model.safetensors"),
            read_text_file(folder_ / "run/model/model.safetensors"));
}

TEST_F(TrainerFolder, ChangedTextIsNamedOnResume) {
  RunConfig half = config("run");
  half.train.exit_interval = 2;
  train(half);
  write_file_atomically(folder_ / "text/text10", "something else, of another length");
  half.train.exit_interval = 0;
  const std::string record = read_text_file(folder_ / "run/run.jsonl");
  test::expect_error<CheckpointError>([&] { train(half, folder_ / "run/checkpoints"); }, {"text"});
  EXPECT_EQ(read_text_file(folder_ / "run/run.jsonl"), record);
}

TEST_F(TrainerFolder, ALossThatIsNotFiniteKeepsTheLastGoodStateAndTheBatch) {
  RunConfig wild = config("run");
  wild.train.lr = 1e30;
  wild.train.min_lr = 1e30;
  wild.train.clip_grad = 0;
  wild.train.weight_decay = 0;
  std::string message;
  try {
    train(wild);
  } catch (const NumericError& error) {
    message = error.what();
  }
  ASSERT_NE(message.find("not-finite-step-"), std::string::npos) << message;
  const std::optional<int64_t> kept = latest_step(folder_ / "run/checkpoints");
  ASSERT_TRUE(kept.has_value());
  const fs::path dump = folder_ / "run" / fmt::format("not-finite-step-{:010}", *kept + 1);
  for (const char* file :
       {"error.txt", "batch.safetensors", "parameters.jsonl", "activations.jsonl"})
    EXPECT_TRUE(fs::exists(dump / file)) << file;
  EXPECT_EQ(record_of(folder_ / "run").back()["reason"], "numeric-error");
  EXPECT_NO_THROW(open_checkpoint(folder_ / "run/checkpoints", false));
}

TEST_F(TrainerFolder, CommonJsonWithoutAFieldIsRefused) {
  RunConfig half = config("run");
  half.train.exit_interval = 2;
  train(half);
  const fs::path saved = folder_ / "run/checkpoints";
  CheckpointParts parts{.step = 9, .contract_version = 1, .writer = "test", .common = "{}"};
  commit_checkpoint(saved, write_unfinished(saved, parts), 9);
  test::expect_error<CheckpointError>([&] { (void)read_identity(open_checkpoint(saved, false)); },
                                      {"[E-CKPT-COMMON]", "/settings"});
}

}  // namespace
}  // namespace lethe
