#include "lethe/report/html_report.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "lethe/base/error.h"
#include "lethe/base/format.h"
#include "lethe/base/version.h"
#include "lethe/report/page/text.h"
#include "lethe/report/run_record.h"
#include "lethe/report/series.h"
#include "lethe/report/text.h"

namespace lethe::report {
namespace {

std::string tile(std::string_view label, const std::string& value, const std::string& note) {
  return fmt::format(
      "<div class=\"tile\"><div class=\"label\">{}</div><div class=\"value\">{}</div>"
      "<div class=\"note\">{}</div></div>\n",
      label,
      escape_html(value),
      escape_html(note));
}

double mean(const std::vector<Point>& points) {
  double sum = 0.0;
  for (const Point& point : points) sum += point.value;
  return sum / static_cast<double>(points.size());
}

/// The largest of the points (`smallest`: the least); the first of equal ones.
Point extreme(const std::vector<Point>& points, bool smallest) {
  const auto less = [](const Point& a, const Point& b) { return a.value < b.value; };
  return smallest ? *std::min_element(points.begin(), points.end(), less)
                  : *std::max_element(points.begin(), points.end(), less);
}

std::string loss_tiles(const RunRecord& record) {
  std::string out;
  const std::vector<Point> valid = series(record.evals, "valid_loss");
  if (!valid.empty()) {
    const Point best = extreme(valid, true);
    out += tile("Validation loss",
                fmt::format("{:.4f}", valid.back().value),
                fmt::format("best {:.4f} at step {:.0f}", best.value, best.step));
  }
  const std::vector<Point> loss = series(record.steps, "loss");
  if (!loss.empty()) {
    out += tile("Training loss",
                fmt::format("{:.4f}", loss.back().value),
                fmt::format("first {:.4f}", loss.front().value));
  }
  const auto entropy = record.start.find("bigram_entropy");
  if (entropy != record.start.end() && entropy->is_number()) {
    out += tile("Trivial model",
                fmt::format("{:.2f}", entropy->get<double>()),
                "nats: a byte given the one before");
  }
  return out;
}

std::string cost_tiles(const RunRecord& record) {
  std::string out;
  if (!record.steps.empty()) {
    out += tile("Last step",
                fmt::format("{:.0f}", record.steps.back()["step"].get<double>()),
                fmt::format("{} steps recorded", record.steps.size()));
  }
  const std::vector<Point> speed = series(record.steps, "tokens_per_second");
  if (!speed.empty()) {
    out += tile("Tokens per second",
                fmt::format("{:.0f}", mean(speed)),
                fmt::format("fastest step {:.0f}", extreme(speed, false).value));
  }
  const std::vector<Point> peak = series(record.steps, "peak_bytes");
  if (!peak.empty()) {
    const Point most = extreme(peak, false);
    out += tile("Peak bytes",
                bytes_text(static_cast<int64_t>(most.value)),
                fmt::format("at step {:.0f}", most.step));
  }
  return out;
}

/// How the run ended, in one badge.
std::string badge(const RunRecord& record) {
  if (record.end.is_null()) {
    const char* text = record.cut_off ? "cut off while it wrote a line" : "no end recorded";
    return fmt::format("<span class=\"badge open\">{}</span>", text);
  }
  const auto reason = record.end.find("reason");
  const std::string text = reason == record.end.end() ? "finished" : value_text(*reason);
  return fmt::format("<span class=\"badge ended\">{}</span>", escape_html(text));
}

/// Rows of a table; the fields of objects inside become rows "outer.inner".
void add_fact_rows(std::string& out, const std::string& prefix, const RunRecord::Object& fields) {
  for (const auto& [name, value] : fields.items()) {
    if (value.is_object()) {
      add_fact_rows(out, prefix + name + ".", value);
    } else {
      out += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n",
                         escape_html(prefix + name),
                         escape_html(value_text(value)));
    }
  }
}

std::string fact_table(std::string_view title, const RunRecord::Object& fields) {
  std::string rows;
  add_fact_rows(rows, "", fields);
  if (rows.empty()) return {};
  return fmt::format(
      "<section class=\"card\"><h2>{}</h2><table>\n{}</table></section>\n", title, rows);
}

std::string page(const RunRecord& record, const std::string& name) {
  const std::string title = escape_html(name);
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{} - Lethe run report</title>\n<style>\n{}</style></head>\n<body>\n"
      "<header><div class=\"brand\">Lethe run report</div><h1>{}</h1>{}</header>\n<main>\n",
      title,
      kPageCss,
      title,
      badge(record));
  out += "<section class=\"tiles\">\n" + loss_tiles(record) + cost_tiles(record) + "</section>\n";
  out += "<section id=\"charts\"><noscript>The charts need JavaScript.</noscript></section>\n";
  out += "<div class=\"facts\">\n" + fact_table("Result", record.end);
  out += fact_table("Run", record.start) + "</div>\n</main>\n";
  out +=
      fmt::format("<footer>Made by Lethe {}. Charts: Chart.js, MIT licence.</footer>\n", version());
  // Appended, not formatted: these parts are long.
  out += "<script type=\"application/json\" id=\"chart-data\">";
  out += script_json(charts(record));
  out += "</script>\n<script>\n";
  out += kChartJs;
  out += "</script>\n<script>\n";
  out += kPageJs;
  out += "</script>\n</body></html>\n";
  return out;
}

}  // namespace

void make_report(const std::filesystem::path& record, const std::filesystem::path& output) {
  const std::string name = record.parent_path().filename().string();
  const std::string text = page(read_run_record(record), name.empty() ? "run" : name);

  std::filesystem::path partial = output;
  partial += ".partial";
  std::ofstream file(partial, std::ios::binary);
  file << text;
  file.close();
  std::error_code error;
  if (file.good()) std::filesystem::rename(partial, output, error);
  LETHE_CHECK(
      DataError,
      file.good() && !error,
      "report: '{}' must be writable, got an error; does its folder exist, and has the disk room?",
      output.string());
}

}  // namespace lethe::report
