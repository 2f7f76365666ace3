#include "lethe/plan/pipeline_layout.h"

#include <algorithm>
#include <cctype>

#include <fmt/ranges.h>

#include "lethe/base/error.h"

namespace lethe {
namespace {

constexpr size_t kMaxItems = 1'000'000;
constexpr int64_t kMaxCount = 1'000'000;

/// The text with every repeat written out: "Et*2|" becomes "Ett|".
class Expander {
 public:
  explicit Expander(std::string_view text) : text_(text) {}

  std::string run() {
    std::string out;
    while (true) {
      skip_commas();
      if (at_ == text_.size()) return out;
      append(out, text_[at_] == '(' ? group() : repeated());
    }
  }

 private:
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> rest, Args&&... args) const {
    fail<ConfigError>("pipeline layout '{}' column {} [V11]: {}",
                      text_,
                      at_ + 1,
                      fmt::format(rest, std::forward<Args>(args)...));
  }

  void append(std::string& out, const std::string& more) const {
    if (out.size() + more.size() > kMaxItems)
      refuse("must expand to at most {} items, got more; lower a count", kMaxItems);
    out += more;
  }

  void skip_commas() {
    while (at_ < text_.size() && text_[at_] == ',') ++at_;
  }

  [[nodiscard]] bool at_digit() const {
    return at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0;
  }

  /// One character, with its count where it has one.
  std::string repeated() {
    const char c = text_[at_];
    if (std::string_view("EtmL|").find(c) == std::string_view::npos)
      refuse("must be one of E t m L | ( , or a count behind '*', got '{}'; remove it", c);
    ++at_;
    skip_commas();
    if (at_ == text_.size() || text_[at_] != '*') return std::string(1, c);
    return std::string(static_cast<size_t>(count()), c);
  }

  std::string group() {
    const size_t open = at_++;
    std::string inside;
    for (skip_commas(); at_ < text_.size() && text_[at_] != ')'; skip_commas()) {
      if (text_[at_] == '(') refuse("must not open a group inside a group, got '('; write it out");
      append(inside, repeated());
    }
    if (at_ == text_.size())
      refuse("must close the group of column {} with ')', got the end; close it", open + 1);
    ++at_;
    skip_commas();
    if (at_ == text_.size() || text_[at_] != '*')
      refuse("must have a count '*n' behind a group, got none; add it");
    const int64_t times = count();
    if (!inside.empty() && static_cast<size_t>(times) > kMaxItems / inside.size())
      refuse("must expand to at most {} items, got more; lower a count", kMaxItems);
    std::string out;
    for (int64_t i = 0; i < times; ++i) out += inside;
    return out;
  }

  /// "*12", the place being at '*'.
  int64_t count() {
    ++at_;
    skip_commas();
    if (!at_digit()) refuse("must be a count behind '*', got none; add it");
    int64_t value = 0;
    for (; at_digit(); ++at_) {
      value = value * 10 + (text_[at_] - '0');
      if (value > kMaxCount) refuse("must be a count up to {}, got more; lower it", kMaxCount);
    }
    if (value == 0) refuse("must be a count >= 1, got 0; leave the item out");
    const size_t behind = at_;
    skip_commas();
    if (at_ > behind && at_digit())
      refuse(
          "must not go on with a digit behind a comma, which some readers join to the count, "
          "got '{}'; remove the comma or the digit",
          text_[at_]);
    return value;
  }

  std::string_view text_;
  size_t at_ = 0;
};

StageItem item_of_name(const std::string& name, const std::string& shown) {
  std::string word;
  for (const char c : name)
    if (std::isspace(static_cast<unsigned char>(c)) == 0)
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (word == "embedding") return StageItem::Embedding;
  if (word == "decoder") return StageItem::Decoder;
  if (word == "mtp") return StageItem::Mtp;
  if (word == "loss") return StageItem::Loss;
  fail<ConfigError>(
      "pipeline layout {} [V11]: must name embedding, decoder, mtp or loss, got '{}'; V4 has no "
      "other parts",
      shown,
      name);
}

PipelineLayout from_names(const std::vector<std::vector<std::string>>& names) {
  PipelineLayout layout;
  layout.text = fmt::format("{}", names);
  for (const auto& stage : names) {
    auto& items = layout.stages.emplace_back();
    for (const std::string& name : stage) items.push_back(item_of_name(name, layout.text));
  }
  return layout;
}

}  // namespace

int64_t PipelineLayout::count(StageItem item) const {
  int64_t n = 0;
  for (const auto& stage : stages) n += std::count(stage.begin(), stage.end(), item);
  return n;
}

PipelineLayout parse_layout(std::string_view text) {
  PipelineLayout layout;
  layout.text = text;
  layout.stages.emplace_back();
  for (const char c : Expander(text).run()) {
    if (c == '|') {
      layout.stages.emplace_back();
    } else {
      layout.stages.back().push_back(static_cast<StageItem>(c));
    }
  }
  return layout;
}

PipelineLayout read_layout(const LayoutSource& source) {
  if (const auto* text = std::get_if<std::string>(&source)) return parse_layout(*text);
  if (const auto* layout = std::get_if<PipelineLayout>(&source)) return *layout;
  return from_names(std::get<std::vector<std::vector<std::string>>>(source));
}

std::vector<std::vector<int64_t>> layers_of_rank(const PipelineLayout& layout,
                                                 int64_t pipeline_ranks,
                                                 int64_t p) {
  std::vector<std::vector<int64_t>> chunks;
  int64_t next = 0;
  for (size_t q = 0; q < layout.stages.size(); ++q) {
    const auto& stage = layout.stages[q];
    const int64_t here = std::count(stage.begin(), stage.end(), StageItem::Decoder);
    if (static_cast<int64_t>(q) % pipeline_ranks == p) {
      auto& ids = chunks.emplace_back();
      for (int64_t i = 0; i < here; ++i) ids.push_back(next + i);
    }
    next += here;
  }
  return chunks;
}

}  // namespace lethe
