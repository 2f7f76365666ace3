#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;
struct pcre2_real_jit_stack_8;

namespace lethe::detail {

/// Working memory of matching, for one thread at a time and any number of expressions.
class RegexScratch {
 public:
  RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;
  ~RegexScratch();

 private:
  friend class SplitRegex;
  pcre2_real_match_data_8* match_ = nullptr;
  pcre2_real_match_context_8* context_ = nullptr;
  pcre2_real_jit_stack_8* stack_ = nullptr;
};

/// Bytes [begin, end) of a text.
struct RegexMatch {
  size_t begin = 0;
  size_t end = 0;
};

/// One expression of a pre-tokenizer. The hub's are written for the library Oniguruma; PCRE2 runs
/// them. What the two read alike is accepted: literals, classes without nesting, \s \d \p{..} with
/// a general category, \r \n \t, groups, look-around, (?i: ), alternatives, quantifiers. Anything
/// else is refused, because it could cut text elsewhere than it did in pre-training.
class SplitRegex {
 public:
  /// where: "FILE: pre_tokenizer.pretokenizers[0]", for errors. DataError [E-TOK-REGEX] with the
  /// byte of the expression when it is refused, cannot be compiled or can match nothing at all.
  SplitRegex(const std::string& expression, const std::string& where);

  /// The first match in `text` from byte `from` on; false: there is none. text: well-formed UTF-8;
  /// `from` begins a character. DataError when the text is too hard for the expression (memory or
  /// steps of the matcher).
  bool find(std::string_view text, size_t from, RegexScratch& scratch, RegexMatch& match) const;

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };

  std::unique_ptr<pcre2_real_code_8, Free> code_;
  std::string where_;
};

}  // namespace lethe::detail
