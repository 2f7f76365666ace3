#include "lethe/report/html_report.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "support/temp_folder.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lethe/base/error.h"
#include "lethe/report/run_record.h"
#include "lethe/report/series.h"

namespace lethe {
namespace {

namespace fs = std::filesystem;

const std::string kStart =
    R"({"event":"start","recipe":"tiny","model":{"hidden_size":64},"bigram_entropy":2.49})";

std::string step_line(int step, double loss) {
  const nlohmann::json line{{"event", "step"},
                            {"step", step},
                            {"loss", loss},
                            {"grad_norm", 1.5},
                            {"lr", 1e-3},
                            {"tokens_per_second", 1000.0 + step},
                            {"live_bytes", 1 << 20},
                            {"peak_bytes", 3 << 20}};
  return line.dump() + "\n";
}

/// A folder of the running test, removed with it.
class HtmlReport : public testing::Test {
 protected:
  [[nodiscard]] fs::path record() const { return folder_ / "record.jsonl"; }

  [[nodiscard]] fs::path output() const { return folder_ / "report.html"; }

  void write_record(const std::string& text) const { std::ofstream(record()) << text; }

  [[nodiscard]] std::string page() const {
    report::make_report(record(), output());
    std::ostringstream text;
    text << std::ifstream(output()).rdbuf();
    return text.str();
  }

  /// The message of the DataError that make_report ends with.
  [[nodiscard]] std::string refusal() const {
    try {
      report::make_report(record(), output());
    } catch (const DataError& error) {
      return error.what();
    }
    return "no error";
  }

  test::TempFolder root_;
  fs::path folder_ = root_.path();  // of the record and the page; its name is the page's title
};

/// The JSON that page.js draws from.
nlohmann::json chart_data(const std::string& page) {
  const std::string open = "id=\"chart-data\">";
  const size_t begin = page.find(open) + open.size();
  return nlohmann::json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

TEST_F(HtmlReport, HoldsEveryValueOfEveryChart) {
  write_record(kStart + "\n" + step_line(1, 5.5) + step_line(2, 4.25) +
               R"({"event":"eval","step":2,"valid_loss":4.5})"
               "\n"
               R"({"event":"end","reason":"all steps done","seconds":12})"
               "\n");
  const std::string text = page();
  const nlohmann::json charts = chart_data(text);
  ASSERT_EQ(charts.size(), 5U);  // loss terms are not in this record
  EXPECT_EQ(charts[0]["title"], "Loss");
  ASSERT_EQ(charts[0]["lines"].size(), 3U);
  EXPECT_EQ(charts[0]["lines"][0]["points"][1]["y"], 4.25);
  EXPECT_EQ(charts[0]["lines"][1]["points"][0]["y"], 4.5);
  EXPECT_EQ(charts[0]["lines"][2]["points"][0]["y"], 2.49);
  EXPECT_EQ(charts[1]["lines"][0]["points"][0]["y"], 1.5);
  EXPECT_EQ(charts[2]["unit"], "bytes");
  EXPECT_EQ(charts[2]["lines"][0]["points"][0]["y"], 3 << 20);
  EXPECT_NE(text.find("<th>model.hidden_size</th><td>64</td>"), std::string::npos);
  EXPECT_NE(text.find("all steps done"), std::string::npos);
  EXPECT_NE(text.find("3.00 MiB"), std::string::npos);
}

TEST_F(HtmlReport, RecomputeHasItsChartAndItsPlan) {
  nlohmann::json step = nlohmann::json::parse(step_line(1, 5.5));
  step["recompute"] = {{"released", 4096}, {"retained", 512}, {"replays", 3}};
  write_record(
      R"({"event":"start","recompute":{"plan":"abc","classes":{"L0-L1":"main/window csa"}}})"
      "\n" +
      step.dump() + "\n" + step_line(2, 5.0));
  const std::string text = page();
  const nlohmann::json chart = chart_data(text)[3];
  EXPECT_EQ(chart["title"], "Recompute");
  ASSERT_EQ(chart["lines"].size(), 2U);
  EXPECT_EQ(chart["lines"][0]["points"].size(), 1U);  // a step without recompute has no point
  EXPECT_EQ(chart["lines"][0]["points"][0]["y"], 4096);
  EXPECT_EQ(chart["lines"][1]["points"][0]["y"], 512);
  EXPECT_NE(text.find("<th>recompute.classes.L0-L1</th><td>main/window csa</td>"),
            std::string::npos);
}

TEST_F(HtmlReport, LoadsNothingFromElsewhere) {
  write_record(kStart + "\n" + step_line(1, 5.5));
  const std::string text = page();
  EXPECT_NE(text.find("Chart.js v3"), std::string::npos);
  for (const char* foreign : {"src=", "href=", "@import", "url("}) {
    // Chart.js itself is one long script; what the page adds is everything outside it.
    const std::string before = text.substr(0, text.find("Chart.js v3"));
    const std::string after = text.substr(text.find("'use strict';\n// Draws"));
    EXPECT_EQ(before.find(foreign), std::string::npos) << foreign;
    EXPECT_EQ(after.find(foreign), std::string::npos) << foreign;
  }
}

TEST_F(HtmlReport, TextOfTheRecordCannotBecomeMarkup) {
  const nlohmann::json start{{"event", "start"},
                             {"data", "</script><script>alert('1')&\"</script>"}};
  const nlohmann::json end{{"event", "end"}, {"reason", "<b>done</b>"}};
  write_record(start.dump() + "\n" + step_line(1, 2.0) + end.dump() + "\n");
  const std::string text = page();
  EXPECT_EQ(text.find("<script>alert"), std::string::npos);
  EXPECT_EQ(text.find("<b>done"), std::string::npos);
  EXPECT_NE(text.find("&lt;/script&gt;&lt;script&gt;alert(&#39;1&#39;)&amp;&quot;"),
            std::string::npos);
}

TEST_F(HtmlReport, NameOfTheFolderIsTheTitleAndIsEscaped) {
  folder_ /= "a<b>&c";
  fs::create_directories(folder_);
  write_record(kStart + "\n");
  EXPECT_NE(page().find("<h1>a&lt;b&gt;&amp;c</h1>"), std::string::npos);
}

TEST_F(HtmlReport, CutOffLastLineIsLeftOutAndSaid) {
  write_record(kStart + "\n" + step_line(1, 5.5) + R"({"event":"step","step":2,"lo)");
  const std::string text = page();
  EXPECT_NE(text.find("cut off while it wrote a line"), std::string::npos);
  EXPECT_EQ(chart_data(text)[0]["lines"][0]["points"].size(), 1U);
}

TEST_F(HtmlReport, CutOffLineThatIsNotTheLastIsAnError) {
  write_record(kStart + "\n{\"event\":\"step\",\"st\n" + step_line(2, 5.5));
  EXPECT_NE(refusal().find("line 2"), std::string::npos) << refusal();
  EXPECT_FALSE(fs::exists(output()));
}

TEST_F(HtmlReport, LossThatIsNotANumberIsAGap) {
  write_record(kStart + "\n" + step_line(1, 5.5) +
               R"({"event":"step","step":2,"loss":null})"
               "\n" +
               step_line(3, 4.0));
  EXPECT_EQ(chart_data(page())[0]["lines"][0]["points"].size(), 2U);
}

TEST_F(HtmlReport, MissingRecordIsNamed) {
  EXPECT_NE(refusal().find("record.jsonl"), std::string::npos) << refusal();
}

TEST_F(HtmlReport, RecordMustBeginWithItsStart) {
  write_record(step_line(1, 5.5));
  EXPECT_NE(refusal().find("must be 'start', got 'step'"), std::string::npos) << refusal();
  write_record("");
  EXPECT_NE(refusal().find("must begin with a 'start' event"), std::string::npos) << refusal();
}

TEST_F(HtmlReport, StepWithoutItsNumberIsAnError) {
  write_record(kStart +
               "\n"
               R"({"event":"step","loss":1})"
               "\n");
  EXPECT_NE(refusal().find("must have a number 'step'"), std::string::npos) << refusal();
}

TEST_F(HtmlReport, UnwritablePageIsAnError) {
  write_record(kStart + "\n");
  EXPECT_THROW(report::make_report(record(), folder_ / "absent" / "report.html"), DataError);
}

TEST_F(HtmlReport, SameRecordGivesSameBytes) {
  write_record(kStart + "\n" + step_line(1, 5.5) + step_line(2, 4.0));
  EXPECT_EQ(page(), page());
}

TEST(Series, LongLinesAreThinnedByEqualRuns) {
  std::vector<report::Point> points;
  for (int i = 1; i <= 10; ++i)
    points.push_back({static_cast<double>(i), static_cast<double>(i * i)});
  const std::vector<report::Point> thinned =
      report::thin(points, 4, report::Keep::Mean);  // runs of 3
  ASSERT_EQ(thinned.size(), 4U);
  EXPECT_EQ(thinned[0].step, 3.0);
  EXPECT_DOUBLE_EQ(thinned[0].value, (1.0 + 4.0 + 9.0) / 3.0);
  EXPECT_EQ(thinned[3].step, 10.0);
  EXPECT_EQ(thinned[3].value, 100.0);
  EXPECT_EQ(report::thin(points, 4, report::Keep::Largest)[0].value, 9.0);
  EXPECT_EQ(report::thin(points, 10, report::Keep::Mean).size(), 10U);
}

}  // namespace
}  // namespace lethe
