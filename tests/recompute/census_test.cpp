#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <set>

#include "recompute/model_run.h"
#include "support/temp_folder.h"
#include "support/tiny_model.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lethe/core/byte_accounting.h"
#include "lethe/train/recompute_trace.h"

// What is resident at the end of a forward, to the byte (spec 3 6.6), and what a run writes of it.
namespace lethe::test {
namespace {

constexpr int64_t kTokens = 48;

/// The model, and the forward whose census is taken.
class CensusTest : public testing::Test {
 protected:
  void SetUp() override {
    install_byte_accounting();
    model_ = lively_model(model_of({}), {}, /*seed=*/7);
  }

  [[nodiscard]] RecomputePlan plan(const std::string& name) const {
    for (RecomputeMode& mode : recompute_modes(subject_of({})))
      if (mode.name == name) return std::move(mode.plan);
    throw std::runtime_error("no mode " + name);
  }

  struct Forward {
    report::Census census;
    std::vector<RegionReport> regions;
    int64_t resident = 0;  // the allocator's own figure
  };

  /// From the first tensor of the batch to the losses; gradients of an earlier step are there.
  Forward forward(const RecomputePlan& plan) {
    LossFactors factors = all_losses(model_->config());
    factors.balance = 0.1;
    for (size_t i = 0; i < model_->params().size(); ++i) {
      const ByteTag tag(ByteCategory::Gradients);
      const at::Tensor& value = model_->params().value(i);
      if (value.requires_grad()) value.mutable_grad() = at::zeros_like(value.detach());
    }
    const BlockWatch watch;
    const MicroBatch batch = random_batch(model_->config(), {19, 5, 24}, 100);
    RunTally tally = model_->make_tally();
    Tape tape;
    const ModelOutput out =
        model_->forward(batch, factors, tally, {}, {.tape = &tape, .plan = &plan});
    Forward result{.census = take_census(watch), .regions = tape.report()};
    const ByteReport now = bytes();
    result.resident = now.live - now.live_of(ByteCategory::Parameters) -
                      now.live_of(ByteCategory::Gradients) - now.live_of(ByteCategory::Optimizer);
    EXPECT_EQ(result.census.live, now.live);
    return result;
  }

  std::unique_ptr<DeepseekV4> model_;
};

const report::CensusRow* find_row(const report::Census& census,
                                  const std::string& layer,
                                  const std::string& producer,
                                  const std::string& shape) {
  for (const report::CensusRow& row : census.rows)
    if (row.layer == layer && row.producer == producer && row.shape == shape) return &row;
  return nullptr;
}

std::vector<nlohmann::json> lines_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST_F(CensusTest, IsTheAllocatorsOwnFigureToTheByte) {
  const int64_t older =
      bytes().live_of(ByteCategory::Activations) + bytes().live_of(ByteCategory::Temporaries);
  std::map<std::string, int64_t> resident;
  for (const char* name : {"none", "csa", "csa+mhc", "full uniform 1"}) {
    SCOPED_TRACE(name);
    const Forward now = forward(plan(name));
    EXPECT_EQ(now.census.total(), now.resident);
    resident[name] = now.resident;
    int64_t before = 0;
    for (const report::CensusRow& row : now.census.rows) {
      if (row.producer == "before the watch") {
        before += row.bytes;
        continue;
      }
      EXPECT_FALSE(row.producer.empty()) << row.layer << row.shape << row.bytes;
      EXPECT_FALSE(row.shape.empty()) << row.layer << "." << row.producer << " " << row.bytes;
      EXPECT_GT(row.count, 0);
      EXPECT_EQ(row.bytes % row.count, 0);
    }
    EXPECT_EQ(before, older);
  }
  EXPECT_LT(resident["csa"], resident["none"]);
  EXPECT_LT(resident["csa+mhc"], resident["csa"]);
  EXPECT_LT(resident["full uniform 1"], resident["csa+mhc"]);
}

TEST_F(CensusTest, NamesTheProducerOfATensorAndItsLayer) {
  const ModelConfig& config = model_->config();
  const std::string q = fmt::format("[{},{},{}]", kTokens, config.heads, config.head_dim);
  const Forward none = forward({});
  std::vector<std::string> layers{"MTP0"};
  for (int64_t i = 0; i < config.num_layers; ++i) layers.push_back(fmt::format("L{}", i));
  for (const std::string& layer : layers) {
    const report::CensusRow* row = find_row(none.census, layer, "attn.q", q);
    ASSERT_NE(row, nullptr) << layer;
    EXPECT_EQ(row->dtype, "float32");
    EXPECT_EQ(row->category, "activations");
    EXPECT_EQ(row->bytes, row->count * kTokens * config.heads * config.head_dim * 4);
  }
  const Forward csa = forward(plan("csa+norm"));
  for (const std::string& layer : layers) {
    EXPECT_EQ(find_row(csa.census, layer, "attn.q", q), nullptr) << layer;
    EXPECT_EQ(find_row(csa.census, layer, "attn.sparse", q), nullptr) << layer;
  }
}

TEST_F(CensusTest, HasTheTensorsOutsideOfLayers) {
  const ModelConfig& config = model_->config();
  const Forward none = forward({});
  const report::CensusRow* ids = find_row(none.census, "", "batch", fmt::format("[{}]", kTokens));
  ASSERT_NE(ids, nullptr);
  EXPECT_EQ(ids->dtype, "int64");
  EXPECT_NE(find_row(none.census, "", "final_norm", fmt::format("[{},{}]", kTokens, config.hidden)),
            nullptr);
  EXPECT_NE(find_row(none.census, "", "head_loss", "[]"), nullptr);
  std::set<std::string> producers;
  for (const report::CensusRow& row : none.census.rows)
    if (row.layer == "MTP0") producers.insert(row.producer);
  for (const char* node : {"mtp.entry", "attn.q", "mlp.experts", "mtp.norm", "mtp.head_loss"})
    EXPECT_TRUE(producers.contains(node)) << node;
}

TEST_F(CensusTest, TheDropBetweenTwoPlansIsWhatTheRegionsReleased) {
  const int64_t none = forward({}).census.total();
  for (const char* name : {"csa", "mhc", "full uniform 1"}) {
    const Forward now = forward(plan(name));
    int64_t released = 0;
    for (const RegionReport& region : now.regions)
      released += region.released - region.snapshot_bytes;
    EXPECT_EQ(none - now.census.total(), released) << name;
  }
}

/// Two traced steps of two micro-batches.
void run_traced(const DeepseekV4& model,
                const std::filesystem::path& folder,
                const RecomputePlan& plan,
                int64_t steps) {
  RecomputeTrace trace(folder, subject_of({}), plan, {.first_step = 1, .num_steps = 2});
  LossFactors factors = all_losses(model.config());
  for (int64_t step = 1; step <= steps; ++step) {
    trace.begin_step(step);
    RunTally tally = model.make_tally();
    std::vector<RegionReport> regions;
    for (int64_t m = 0; m < 2; ++m) {
      const MicroBatch batch = random_batch(model.config(), {19, 5, 24}, 100);
      Tape tape;
      const ModelOutput out = model.forward(
          batch, factors, tally, {}, {.tape = &tape, .plan = &plan, .micro_batch = m});
      trace.end_forward();
      const std::vector<RegionReport> now = tape.report();  // the bytes of this moment count
      regions.insert(regions.end(), now.begin(), now.end());
      out.total.backward();
    }
    trace.end_step(regions);
  }
}

TEST_F(CensusTest, ARunWritesRegionsCensusAndTrace) {
  const TempFolder folder;
  run_traced(*model_, folder.path(), plan("csa+norm+mhc"), 3);
  const auto regions = lines_of(folder / "recompute.jsonl");
  std::map<int64_t, int64_t> of_step;
  for (const auto& line : regions) ++of_step[line["step"].get<int64_t>()];
  ASSERT_EQ(of_step.size(), 3u);
  EXPECT_EQ(of_step[1], of_step[3]);
  EXPECT_EQ(std::count_if(regions.begin(),
                          regions.end(),
                          [](const auto& line) { return line["region"] == "MTP0.mb1.sparse"; }),
            3);

  const auto census = lines_of(folder / "census.jsonl");
  std::map<int64_t, int64_t> bytes_of;
  int64_t totals = 0;
  for (const auto& line : census) {
    const auto step = line["step"].get<int64_t>();
    if (!line.contains("total")) {
      bytes_of[step] += line["bytes"].get<int64_t>();
      continue;
    }
    ++totals;
    EXPECT_EQ(line["total"], bytes_of[step]);
    EXPECT_EQ(line["total"].get<int64_t>(),
              line["live"].get<int64_t>() - line["parameters"].get<int64_t>() -
                  line["gradients"].get<int64_t>() - line["optimizer"].get<int64_t>());
  }
  EXPECT_EQ(totals, 2);

  const auto trace = lines_of(folder / "recompute-trace.json");
  ASSERT_EQ(trace.size(), 1u);
  std::set<std::string> marks, replayed;
  for (const auto& event : trace[0]["traceEvents"]) {
    if (event["ph"] == "i" && event["cat"] == "mark") marks.insert(event["name"]);
    if (event["ph"] == "X" && event["cat"] == "replay") replayed.insert(event["name"]);
  }
  EXPECT_EQ(marks,
            (std::set<std::string>{
                "step 1", "end of forward", "end of step 1", "step 2", "end of step 2"}));
  EXPECT_TRUE(replayed.contains("L1.mb0.sparse"));
  EXPECT_TRUE(replayed.contains("MTP0.mb1.sparse"));
}

// Sparse attention alone is a region, and o-down keeps its output. The log-sum-exp goes where only
// the region's own node saves it; where the indexer's loss saves it too, the region frees nothing.
TEST_F(CensusTest, ARegionThatFreesNothingIsWrittenWithItsConsumer) {
  const TempFolder folder;
  run_traced(*model_, folder.path(), plan("core_attn"), 1);
  std::map<std::string, nlohmann::json> line_of;
  for (nlohmann::json& line : lines_of(folder / "recompute.jsonl")) {
    const auto region = line["region"].get<std::string>();
    line_of[region] = std::move(line);
  }
  ASSERT_EQ(line_of.size(), 2u * 5u);
  const ModelConfig& config = model_->config();
  const int64_t lse = kTokens * config.heads * 4, o = lse * config.head_dim;
  const std::set<std::string> with_loss{"L1", "L3"};
  for (const char* layer : {"L0", "L1", "L2", "L3", "MTP0"})
    for (const char* mb : {"mb0", "mb1"}) {
      const nlohmann::json& line = line_of.at(fmt::format("{}.{}.sparse", layer, mb));
      const bool loss = with_loss.contains(layer);
      EXPECT_EQ(line["released"].get<int64_t>(), loss ? 0 : lse) << line;
      EXPECT_EQ(line["retained"].get<int64_t>(), loss ? o + lse : o) << line;
      const auto consumers = line["consumers"].get<std::vector<std::string>>();
      EXPECT_NE(std::find(consumers.begin(), consumers.end(), "attn.oup"), consumers.end()) << line;
    }
}

}  // namespace
}  // namespace lethe::test
