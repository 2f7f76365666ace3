#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>

#include <fmt/format.h>

#include "lethe/base/error.h"
#include "lethe/data/split_syntax_impl.h"
#include "lethe/data/unicode_additions_impl.h"

namespace lethe::detail {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Walks over the expression and copies it, translated, piece by piece.
class Translator {
 public:
  Translator(std::string_view expression, const std::string& where)
      : text_(expression), where_(where) {}

  std::string run() {
    while (at_ < text_.size()) {
      if (peek() == '\\') {
        escape();
      } else if (in_class_) {
        in_class();
      } else {
        outside();
      }
    }
    return std::move(out_);
  }

 private:
  [[nodiscard]] char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }

  [[nodiscard]] bool next_is(std::string_view word) const {
    return text_.substr(at_).starts_with(word);
  }

  void copy(size_t length) {
    out_ += text_.substr(at_, length);
    at_ += length;
  }

  [[noreturn]] void refuse(std::string_view wanted, size_t length) const {
    fail<DataError>(
        "{} [E-TOK-REGEX]: {}, got '{}' at byte {} of '{}'; this tokenizer is not "
        "supported",
        where_,
        wanted,
        text_.substr(at_, length),
        at_,
        text_);
  }

  void escape() {
    const char c = peek(1);
    if (c == 's' || c == 'S') {
      // PCRE2's own \s also has U+180E.
      out_ += c == 's' ? "\\p{White_Space}" : "\\P{White_Space}";
      at_ += 2;
    } else if (c == 'd' || c == 'D') {
      category("Nd", c == 'D', 2);
    } else if (c == 'p' || c == 'P') {
      property(c == 'P');
    } else if (c == 'r' || c == 'n' || c == 't' ||
               std::ispunct(static_cast<unsigned char>(c)) != 0) {
      copy(2);
    } else {
      refuse(
          "an escape must be one of \\s \\S \\d \\D \\p{..} \\P{..} \\r \\n \\t or of a "
          "punctuation character",
          2);
    }
  }

  // A general category: other properties depend on which scripts and versions a library knows, and
  // so does the category of what is unassigned.
  void property(bool is_negated) {
    const size_t close = text_.find('}', at_);
    const std::string_view name = close == std::string_view::npos || peek(2) != '{'
                                      ? std::string_view()
                                      : text_.substr(at_ + 3, close - at_ - 3);
    const bool is_category =
        (name.size() == 1 || (name.size() == 2 && name[1] >= 'a' && name[1] <= 'z')) &&
        std::string_view("LMNPSZ").find(name[0]) != std::string_view::npos;
    if (!is_category)
      refuse("\\p must name a general category of assigned characters such as \\p{L} or \\p{Lu}",
             close == std::string_view::npos ? 2 : close - at_ + 1);
    category(name, is_negated, close - at_ + 1);
  }

  // The category in PCRE2's tables and what Unicode has added to it since; length: of the source.
  void category(std::string_view name, bool is_negated, size_t length) {
    if (in_class_ && is_negated) refuse("a class must not hold a negated property", length);
    if (!in_class_) out_ += is_negated ? "[^" : "[";
    fmt::format_to(std::back_inserter(out_), "\\p{{{}}}", name);
    for (const UnicodeAddition& addition : unicode_additions())
      if (addition.category.starts_with(name))
        fmt::format_to(
            std::back_inserter(out_), "\\x{{{:X}}}-\\x{{{:X}}}", addition.first, addition.last);
    if (!in_class_) out_ += ']';
    at_ += length;
  }

  void in_class() {
    if (peek() == '[') refuse("a class must not hold another one", 2);
    if (next_is("&&")) refuse("a class must not be an intersection", 2);
    if (peek() == ']') in_class_ = false;
    copy(1);
  }

  void outside() {
    switch (peek()) {
      case '[':
        in_class_ = true;
        copy(peek(1) == '^' ? 2 : 1);
        if (peek() == ']') refuse("a class must have a member", 1);
        break;
      case '(':
        group();
        break;
      case '{':
        repetition();
        break;
      case '^':
      case '$':
        refuse("an expression must not be tied to the begin or end of a text", 1);
      default:
        copy(1);
    }
  }

  void group() {
    static constexpr std::array<std::string_view, 6> kOpenings = {
        "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?i:"};
    const auto opening =
        std::find_if(kOpenings.begin(), kOpenings.end(), [&](auto word) { return next_is(word); });
    if (opening != kOpenings.end()) {
      copy(opening->size());
    } else if (peek(1) == '?' || peek(1) == '*') {
      refuse("a group must be ( ), (?: ), (?= ), (?! ), (?<= ), (?<! ) or (?i: )", 3);
    } else {
      copy(1);
    }
  }

  // {n}, {n,} or {n,m}. A '+' behind it is possessive for one library and a repetition for the
  // other.
  void repetition() {
    size_t length = 1;
    while (is_digit(peek(length))) ++length;
    const bool has_digits = length > 1;
    if (peek(length) == ',') ++length;
    while (is_digit(peek(length))) ++length;
    if (!has_digits || peek(length) != '}' || peek(length + 1) == '+')
      refuse("a brace must be a repetition {n}, {n,} or {n,m} without '+' behind it", length + 2);
    copy(length + 1);
  }

  std::string_view text_;
  const std::string& where_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

}  // namespace

std::string pcre2_expression(std::string_view expression, const std::string& where) {
  return Translator(expression, where).run();
}

}  // namespace lethe::detail
