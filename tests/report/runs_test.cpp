#include "lethe/report/runs.h"

#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "support/temp_folder.h"
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lethe/base/error.h"
#include "lethe/io/folder_lock.h"
#include "lethe/report/runs_text.h"

namespace lethe {
namespace {

namespace fs = std::filesystem;
using report::RunComparison;
using report::RunSummary;
using test::TempFolder;

std::string start_line(double lr, int iters = 9) {
  return fmt::format(
      R"({{"event":"start","model":{{"hidden":64,"ratios":[0,4]}},"train":{{"lr":{},"train_iters":{}}},"parameters":2117000,"threads":1}})"
      "\n",
      lr,
      iters);
}

std::string step_line(int64_t step, double loss, double speed = 100, int64_t peak = 1 << 20) {
  const nlohmann::json line{{"event", "step"},
                            {"step", step},
                            {"loss", loss},
                            {"tokens_per_second", speed},
                            {"peak_bytes", peak}};
  return line.dump() + "\n";
}

std::string eval_line(int64_t step, double loss) {
  return nlohmann::json{{"event", "eval"}, {"step", step}, {"valid_loss", loss}}.dump() + "\n";
}

std::string session_line(const std::string& event, double time, const std::string& reason = "") {
  nlohmann::json line{{"event", event}, {"time", time}, {"step", 1}};
  if (!reason.empty()) line["reason"] = reason;
  return line.dump() + "\n";
}

template <class Kind, class Action>
std::string refusal(Action action) {
  try {
    action();
  } catch (const Kind& error) {
    return error.what();
  }
  return "accepted";
}

RunSummary summary_of(const TempFolder& folder, const std::string& record) {
  folder.write("r/run.jsonl", record);
  return report::summarize_run(folder / "r");
}

RunComparison compare(const TempFolder& folder, const std::vector<std::string>& records) {
  std::vector<fs::path> paths;
  for (const std::string& record : records) {
    paths.push_back(folder / std::to_string(paths.size()));
    folder.write(paths.back() / "run.jsonl", record);
  }
  return report::compare_runs(paths);
}

TEST(FindRuns, RunsAreFoundAtAnyDepthOnceAndInTheOrderOfThePlaces) {
  const TempFolder folder;
  for (const char* run : {"b/deep/er", "a", "c"}) folder.write(fs::path(run) / "run.jsonl", "");
  folder.write("a/checkpoints/run.jsonl", "");  // of a run that is one already
  folder.write("d/notes.txt", "");
  const std::vector<fs::path> places{
      folder / "c/", folder.path(), folder / "a/run.jsonl", folder / "b"};
  EXPECT_EQ(report::find_runs(places),
            (std::vector<fs::path>{folder / "c", folder / "a", folder / "b/deep/er"}));
}

TEST(FindRuns, APlaceWithoutARunIsNamed) {
  const TempFolder folder;
  folder.write("d/notes.txt", "");
  const auto find = [](const fs::path& place) {
    return refusal<DataError>([&] { (void)report::find_runs(std::vector<fs::path>{place}); });
  };
  EXPECT_NE(find(folder / "d").find("must hold a run (run.jsonl)"), std::string::npos);
  EXPECT_NE(find(folder / "absent").find("got nothing there"), std::string::npos);
  EXPECT_NE(find(folder / "d/notes.txt").find("got a file"), std::string::npos);
  EXPECT_NE(find(folder / std::string(300, 'n')).find("got nothing there"), std::string::npos);
  fs::create_symlink(folder / "loop", folder / "loop");
  EXPECT_NE(find(folder / "loop").find("cannot look at the path"), std::string::npos);
}

TEST(SummarizeRun, EveryColumnIsWhatTheRecordSays) {
  const TempFolder folder;
  const RunSummary run =
      summary_of(folder,
                 start_line(0.1) + step_line(1, 5, 300, 7) + step_line(2, 4, 100, 9) +
                     eval_line(2, 4.5) + step_line(3, 3, 200, 8) +
                     R"({"event":"end","step":3,"reason":"max-seconds"})"
                     "\n");
  EXPECT_EQ(run.status, "max-seconds");
  EXPECT_EQ(run.steps, 3);
  EXPECT_EQ(run.steps_asked, 9);
  EXPECT_EQ(run.loss, 3);
  EXPECT_EQ(run.valid_loss, 4.5);
  EXPECT_EQ(run.tokens_per_second, 200);
  EXPECT_EQ(run.peak_bytes, 9);
  EXPECT_EQ(run.parameters, 2117000);
  EXPECT_FALSE(run.started.has_value());
}

TEST(SummarizeRun, TheMedianOfAnEvenNumberIsTheMeanOfTheMiddleOnes) {
  const TempFolder folder;
  const RunSummary run = summary_of(folder,
                                    start_line(0.1) + step_line(1, 5, 40) + step_line(2, 5, 10) +
                                        step_line(3, 5, 20) + step_line(4, 5, 1000));
  EXPECT_EQ(run.tokens_per_second, 30);
}

TEST(SummarizeRun, ARecordWithoutStepsHasNoFigures) {
  const TempFolder folder;
  const RunSummary run = summary_of(folder, "{\"event\":\"start\"}\n");
  EXPECT_EQ(run.status, "unfinished");
  EXPECT_EQ(run.steps, 0);
  EXPECT_FALSE(run.loss || run.valid_loss || run.tokens_per_second || run.peak_bytes ||
               run.parameters || run.steps_asked);
}

TEST(SummarizeRun, AllSettingsTellTheStepsAskedFirst) {
  const TempFolder folder;
  const RunSummary run = summary_of(
      folder, R"({"event":"start","settings":{"train_iters":12},"train":{"train_iters":3}})");
  EXPECT_EQ(run.steps_asked, 12);
}

TEST(SummarizeRun, TheSessionsTellStatusAndStart) {
  const TempFolder folder;
  const auto status = [&](const std::string& sessions) {
    folder.write("r/sessions.jsonl", sessions);
    const RunSummary run = summary_of(folder, start_line(0.1) + step_line(1, 5));
    EXPECT_EQ(run.started, 100);
    return run.status;
  };
  const std::string started = session_line("started", 100);
  EXPECT_EQ(status(started + session_line("saved", 101)), "killed");
  EXPECT_EQ(status(started + session_line("stopped", 102, "signal")), "signal");
  EXPECT_EQ(status(started + session_line("stopped", 102, "signal") + session_line("resumed", 103)),
            "killed");
  EXPECT_EQ(status(started + "{\"event\":\"resu\n" + session_line("stopped", 9, "finished")),
            "finished");
  EXPECT_EQ(status(started + "{\"event\":\"stop"), "killed");
  const FolderLock lock(folder / "r");
  EXPECT_EQ(status(started + session_line("saved", 101)), "running");
}

TEST(SummarizeRun, WhatAKilledProcessWroteBeyondTheCheckpointDoesNotCount) {
  const TempFolder folder;
  const RunSummary run = summary_of(folder,
                                    start_line(0.1) + step_line(1, 5) + step_line(2, 4) +
                                        eval_line(2, 7) + step_line(3, 3, 100, 99 << 20) +
                                        R"({"event":"end","reason":"signal"})"
                                        "\n" +
                                        step_line(2, 4.25));
  EXPECT_EQ(run.steps, 2);
  EXPECT_EQ(run.loss, 4.25);
  EXPECT_EQ(run.peak_bytes, 1 << 20);
  EXPECT_FALSE(run.valid_loss.has_value());
  EXPECT_EQ(run.status, "unfinished");
}

TEST(SummarizeRun, AMalformedLineIsNamedByFileAndNumber) {
  const TempFolder folder;
  const auto problem = [&](const std::string& record) {
    return refusal<DataError>([&] { (void)summary_of(folder, record); });
  };
  const std::string file = (folder / "r/run.jsonl").string();
  EXPECT_NE(problem(start_line(1) + "nonsense\n").find("line 2 of '" + file + "'"),
            std::string::npos);
  EXPECT_NE(problem(start_line(1) + "{\"event\":\"end\"}" + std::string(1, '\0') + " lost\n")
                .find("line 2 of"),
            std::string::npos);
  EXPECT_NE(problem(start_line(1) + "{\"event\":\"step\"}\n").find("a number 'step'"),
            std::string::npos);
  EXPECT_NE(problem("{\"event\":\"step\",\"step\":1}\n").find("must be 'start'"),
            std::string::npos);
  folder.write("r/sessions.jsonl", session_line("started", 1) + "[1]\n");
  EXPECT_NE(problem(start_line(1)).find("session record: line 2 of"), std::string::npos);
  folder.write("r/sessions.jsonl", "{\"event\":\"started\"}\n");
  EXPECT_NE(problem(start_line(1)).find("a number 'time'"), std::string::npos);
  folder.write("r/sessions.jsonl", session_line("stopped", 1));
  EXPECT_NE(problem(start_line(1)).find("a text 'reason'"), std::string::npos);
}

TEST(RunsText, OneRowPerRunAndWhatIsWrongBelow) {
  const TempFolder folder;
  folder.write("a/run.jsonl", start_line(0.1) + step_line(1, 5, 1234.4) + eval_line(1, 4.5));
  folder.write("a/sessions.jsonl",
               session_line("started", 1769860800) + session_line("stopped", 2, "signal"));
  folder.write("b/run.jsonl", "nonsense\n");
  const auto runs = report::summarize_runs(std::vector<fs::path>{folder / "a", folder / "b"});
  const std::string a = (folder / "a").string();
  const std::string b = (folder / "b").string();
  const std::string pad(a.size() - 3, ' ');
  const std::string text = report::runs_text(runs);
  EXPECT_TRUE(text.starts_with(
      "run" + pad +
      "  status             started (UTC)     steps    loss  valid loss  tok/s      peak  "
      "parameters\n" +
      a + "  stopped by signal  2026-01-31 12:00    1/9  5.0000      4.5000   1234  1.00 MiB" +
      "       2.12M\n" + b +
      "  unreadable         -                     0       -           -      -         -" +
      "           -\n"))
      << text;
  EXPECT_NE(text.find("run record: line 1 of '" + b), std::string::npos) << text;
}

TEST(RunsText, JsonHasEveryFieldAndNullForTheAbsent) {
  const TempFolder folder;
  folder.write("a/run.jsonl", start_line(0.1) + step_line(1, 5));
  folder.write("b/run.jsonl", "nonsense\n");
  const auto runs = report::summarize_runs(std::vector<fs::path>{folder / "a", folder / "b"});
  const auto json = nlohmann::json::parse(report::runs_json(runs));
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[0]["loss"], 5.0);
  EXPECT_EQ(json[0]["steps_asked"], 9);
  EXPECT_TRUE(json[0]["valid_loss"].is_null());
  EXPECT_TRUE(json[0]["problem"].is_null());
  EXPECT_EQ(json[1]["status"], "unreadable");
  EXPECT_TRUE(json[1]["problem"].is_string());
}

TEST(CompareRuns, OnlySettingsThatDifferAreListedByTheirPath) {
  const TempFolder folder;
  const std::string other =
      R"({"event":"start","model":{"hidden":64,"ratios":[0,8]},"train":{"lr":0.1,"train_iters":9,"note":"x"},"parameters":2117000,"threads":1})"
      "\n";
  const RunComparison result = compare(folder, {start_line(0.1), other});
  ASSERT_EQ(result.differences.size(), 2u);
  EXPECT_EQ(result.differences[0].key, "model.ratios");
  EXPECT_EQ(result.differences[0].values,
            (std::vector<std::optional<std::string>>{"[0,4]", "[0,8]"}));
  EXPECT_EQ(result.differences[1].key, "train.note");
  EXPECT_EQ(result.differences[1].values,
            (std::vector<std::optional<std::string>>{std::nullopt, "x"}));
}

TEST(CompareRuns, WhereAllRunsHaveAllSettingsTheseAreCompared) {
  const TempFolder folder;
  const auto start = [](int hidden, double lr) {
    return fmt::format(
        R"({{"event":"start","model":{{"hidden":{}}},"settings":{{"hidden_size":{},"lr":{}}}}})"
        "\n",
        hidden,
        hidden,
        lr);
  };
  const RunComparison result = compare(folder, {start(64, 0.1), start(128, 0.1)});
  ASSERT_EQ(result.differences.size(), 1u);
  EXPECT_EQ(result.differences[0].key, "settings.hidden_size");
}

TEST(CompareRuns, LossesAreComparedInBitsAtCommonSteps) {
  const TempFolder folder;
  const double loss = 1.0 / 3.0;
  const double next = std::nextafter(loss, 1.0);
  const std::string first = start_line(0.1) + step_line(1, 5) + step_line(2, loss) +
                            step_line(3, loss) + step_line(4, 2) + step_line(5, 1);
  const std::string second = start_line(0.1) + step_line(1, 5) + step_line(3, loss) +
                             step_line(4, 2) + step_line(5, 1) + step_line(6, 0);
  const std::string third = start_line(0.1) + step_line(1, 5) + step_line(2, loss) +
                            step_line(3, next) + step_line(4, 2) + step_line(5, 1);
  const RunComparison equal = compare(folder, {first, second});
  EXPECT_EQ(equal.num_common, 4);
  EXPECT_FALSE(equal.first_different_step.has_value());
  EXPECT_EQ(equal.last_equal_step, 5);
  const RunComparison parted = compare(folder, {first, second, third});
  EXPECT_EQ(parted.first_different_step, 3);
  EXPECT_EQ(parted.last_equal_step, 1);
  EXPECT_NE(
      report::comparison_text(parted).find("identical up to step 1, first different at step 3\n"),
      std::string::npos);
}

TEST(CompareRuns, RowsAreSpreadEvenlyAndPreferStepsWithAValidationLoss) {
  const TempFolder folder;
  std::string record = start_line(0.1);
  for (int step = 1; step <= 1000; ++step) {
    record += step_line(step, 1000 - step);
    if (step % 100 == 0) record += eval_line(step, step);
  }
  const RunComparison result = compare(folder, {record, record});
  std::vector<int64_t> steps;
  for (const auto& row : result.rows) steps.push_back(row.step);
  EXPECT_EQ(steps,
            (std::vector<int64_t>{1, 100, 200, 300, 400, 500, 546, 600, 700, 800, 900, 1000}));
  EXPECT_EQ(result.rows[1].losses, (std::vector<std::optional<double>>{900, 900}));
  EXPECT_EQ(result.rows[1].valid_losses, (std::vector<std::optional<double>>{100, 100}));
  EXPECT_FALSE(result.rows[0].valid_losses[0].has_value());
}

TEST(CompareRuns, FewStepsAreAllShownAndManyWithoutValidationEvenly) {
  const TempFolder folder;
  std::string record = start_line(0.1);
  for (int step = 1; step <= 12; ++step) record += step_line(step, step);
  EXPECT_EQ(compare(folder, {record, record}).rows.size(), 12u);
  for (int step = 13; step <= 111; ++step) record += step_line(step, step);
  const RunComparison many = compare(folder, {record, record});
  ASSERT_EQ(many.rows.size(), report::kMaxComparedSteps);
  for (size_t i = 0; i < many.rows.size(); ++i)
    EXPECT_EQ(many.rows[i].step, 1 + 10 * static_cast<int64_t>(i));
}

TEST(CompareRuns, RunsWithoutCommonStepsSaySo) {
  const TempFolder folder;
  const RunComparison result = compare(folder, {start_line(0.1) + step_line(1, 5), start_line(1)});
  EXPECT_TRUE(result.rows.empty());
  const std::string text = report::comparison_text(result);
  EXPECT_NE(text.find("no step that all runs recorded"), std::string::npos) << text;
  EXPECT_NE(text.find("train.lr  0.1  1\n"), std::string::npos) << text;
}

TEST(CompareRuns, TextAndJsonShowTheSame) {
  const TempFolder folder;
  const RunComparison result = compare(
      folder,
      {start_line(0.1) + step_line(1, 5) + eval_line(1, 4), start_line(0.1) + step_line(1, 6)});
  EXPECT_EQ(report::comparison_text(result),
            fmt::format("A  {}\nB  {}\n\nsettings: all equal\n\n"
                        "step  loss A  loss B  valid A  valid B\n"
                        "   1  5.0000  6.0000   4.0000        -\n\n"
                        "different from step 1 on, the first common one\n",
                        (folder / "0").string(),
                        (folder / "1").string()));
  const auto json = nlohmann::json::parse(report::comparison_json(result));
  EXPECT_EQ(json["rows"][0]["losses"], nlohmann::json({5.0, 6.0}));
  EXPECT_EQ(json["rows"][0]["valid_losses"], nlohmann::json({4.0, nullptr}));
  EXPECT_EQ(json["first_different_step"], 1);
  EXPECT_TRUE(json["last_equal_step"].is_null());
  EXPECT_TRUE(json["differences"].empty());
}

TEST(CompareRuns, OneRunAloneIsRefused) {
  const std::vector<fs::path> one{"a"};
  EXPECT_TRUE(refusal<ConfigError>([&] {
                (void)report::compare_runs(one);
              }).starts_with("--compare: must be given at least two runs, got 1"));
}

}  // namespace
}  // namespace lethe
