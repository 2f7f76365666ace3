#include <cstdint>

#include "lethe/data/split_regex_impl.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "lethe/base/error.h"
#include "lethe/data/split_syntax_impl.h"

namespace lethe::detail {
namespace {

constexpr size_t kJitStackFirst = size_t{32} << 10;
constexpr size_t kJitStackMost = size_t{8} << 20;

std::string pcre2_text(int error) {
  unsigned char text[256];
  if (pcre2_get_error_message(error, text, sizeof(text)) < 0) return std::to_string(error);
  return reinterpret_cast<const char*>(text);
}

// Line ends as Oniguruma has them: only '\n' ends what '.' matches.
pcre2_code* compile(const std::string& expression, int& error, size_t& offset) {
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()),
                                   expression.size(),
                                   PCRE2_UTF | PCRE2_UCP,
                                   &error,
                                   &offset,
                                   context);
  pcre2_compile_context_free(context);
  return code;
}

}  // namespace

RegexScratch::RegexScratch()
    : match_(pcre2_match_data_create(1, nullptr)),
      context_(pcre2_match_context_create(nullptr)),
      stack_(pcre2_jit_stack_create(kJitStackFirst, kJitStackMost, nullptr)) {
  if (match_ == nullptr || context_ == nullptr || stack_ == nullptr) fail_internal("no memory");
  pcre2_jit_stack_assign(context_, nullptr, stack_);
}

RegexScratch::~RegexScratch() {
  pcre2_jit_stack_free(stack_);
  pcre2_match_context_free(context_);
  pcre2_match_data_free(match_);
}

void SplitRegex::Free::operator()(pcre2_real_code_8* code) const {
  pcre2_code_free(code);
}

SplitRegex::SplitRegex(const std::string& expression, const std::string& where) : where_(where) {
  const std::string translated = pcre2_expression(expression, where);
  int error = 0;
  size_t offset = 0;
  code_.reset(compile(translated, error, offset));
  LETHE_CHECK(DataError,
              code_ != nullptr,
              "{} [E-TOK-REGEX]: the expression must compile, got '{}' at byte {} of '{}'; correct "
              "the file",
              where,
              pcre2_text(error),
              offset,
              translated);
  uint32_t matches_empty = 0;
  pcre2_pattern_info(code_.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
  LETHE_CHECK(DataError,
              matches_empty == 0,
              "{} [E-TOK-REGEX]: each match must have a character, got '{}', which may match "
              "nothing; correct the file",
              where,
              expression);
  // Where a system forbids generated code, pcre2_match() interprets: the same matches, slower.
  pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
}

bool SplitRegex::find(std::string_view text,
                      size_t from,
                      RegexScratch& scratch,
                      RegexMatch& match) const {
  const int found = pcre2_match(code_.get(),
                                reinterpret_cast<PCRE2_SPTR>(text.data()),
                                text.size(),
                                from,
                                PCRE2_NO_UTF_CHECK,
                                scratch.match_,
                                scratch.context_);
  if (found == PCRE2_ERROR_NOMATCH) return false;
  LETHE_CHECK(DataError,
              found >= 0,
              "{} [E-TOK-MATCH]: the expression must be matched within the matcher's limits, got "
              "'{}' in a piece "
              "of {} bytes; split the text",
              where_,
              pcre2_text(found),
              text.size());
  const size_t* range = pcre2_get_ovector_pointer(scratch.match_);
  match = {range[0], range[1]};
  return true;
}

}  // namespace lethe::detail
