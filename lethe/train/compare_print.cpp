#include <algorithm>
#include <ostream>

#include <nlohmann/json.hpp>

#include "lethe/train/compare.h"

namespace lethe {
namespace {

std::string_view verdict_text(CompareRow::Verdict verdict) {
  switch (verdict) {
    case CompareRow::Verdict::Pass:
      return "pass";
    case CompareRow::Verdict::Miss:
      return "MISS";
    case CompareRow::Verdict::NotCompared:
      return "not compared";
  }
  return "";
}

void print_json(const std::vector<CompareRow>& rows, std::ostream& out) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const CompareRow& row : rows)
    list.push_back({{"name", row.name},
                    {"max_abs", row.max_abs},
                    {"max_rel", row.max_rel},
                    {"allowed", row.allowed},
                    {"verdict", verdict_text(row.verdict)},
                    {"note", row.note}});
  out << list.dump(1) << "\n";
}

void print_summary(const std::vector<CompareRow>& rows, std::ostream& out) {
  const auto count = [&](CompareRow::Verdict v) {
    return std::count_if(
        rows.begin(), rows.end(), [v](const CompareRow& row) { return row.verdict == v; });
  };
  out << fmt::format("{} passed, {} missed, {} not compared\n",
                     count(CompareRow::Verdict::Pass),
                     count(CompareRow::Verdict::Miss),
                     count(CompareRow::Verdict::NotCompared));
}

}  // namespace

void print_rows(const std::vector<CompareRow>& rows, bool json, std::ostream& out) {
  if (json) return print_json(rows, out);
  size_t width = 4;
  for (const CompareRow& row : rows) width = std::max(width, row.name.size());
  out << fmt::format("{:<{}}  {:>10}  {:>10}  {:>10}  {}\n",
                     "name",
                     width,
                     "max abs",
                     "max rel",
                     "allowed",
                     "verdict");
  for (const CompareRow& row : rows) {
    const std::string note = row.note.empty() ? "" : ": " + row.note;
    if (row.verdict == CompareRow::Verdict::NotCompared)
      out << fmt::format(
          "{:<{}}  {:>10}  {:>10}  {:>10}  not compared{}\n", row.name, width, "-", "-", "-", note);
    else
      out << fmt::format("{:<{}}  {:>10.3g}  {:>10.3g}  {:>10.3g}  {}{}\n",
                         row.name,
                         width,
                         row.max_abs,
                         row.max_rel,
                         row.allowed,
                         verdict_text(row.verdict),
                         note);
  }
  print_summary(rows, out);
}

}  // namespace lethe
