#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace lethe {

/// Exit codes of every Lethe program (style 2.5). A check the user asked for that fails is 1.
namespace exit_code {
inline constexpr int kOk = 0;
inline constexpr int kCheckFailed = 1;
inline constexpr int kUsage = 2;
inline constexpr int kDoesNotFit = 3;
inline constexpr int kData = 4;
inline constexpr int kComm = 5;
inline constexpr int kNumeric = 6;
inline constexpr int kInternal = 7;
inline constexpr int kSignal = 128;  // plus the signal's number
}  // namespace exit_code

/// Base of every error that Lethe throws. what() is one sentence:
///   <where> [rule]: <what must hold>, got <actual>; <what to do>
class Error : public std::runtime_error {
 public:
  Error(const char* kind, int code, const std::string& text)
      : std::runtime_error(text), kind_(kind), code_(code) {}

  /// The class name as users see it, e.g. "ConfigError".
  [[nodiscard]] const char* kind() const noexcept { return kind_; }

  /// The exit code of a program that this error ends.
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  const char* kind_;
  int code_;
};

#define LETHE_ERROR_KIND(Name, exit)                                     \
  struct Name final : Error {                                            \
    explicit Name(const std::string& text) : Error(#Name, exit, text) {} \
  }

LETHE_ERROR_KIND(ConfigError, exit_code::kUsage);      // a flag, a key, a combination of them
LETHE_ERROR_KIND(ShapeError, exit_code::kUsage);       // a tensor's sizes
LETHE_ERROR_KIND(DtypeError, exit_code::kUsage);       // a tensor's element type
LETHE_ERROR_KIND(RecomputeError, exit_code::kUsage);   // a release plan or its execution
LETHE_ERROR_KIND(SwapError, exit_code::kUsage);        // a swap entry or its copies
LETHE_ERROR_KIND(OutOfArena, exit_code::kDoesNotFit);  // bytes beyond a limit that the user set
LETHE_ERROR_KIND(DataError, exit_code::kData);  // text, tokens, a file that is not what it claims
LETHE_ERROR_KIND(CheckpointError, exit_code::kData);    // weights on disk
LETHE_ERROR_KIND(CommError, exit_code::kComm);          // other ranks
LETHE_ERROR_KIND(NumericError, exit_code::kNumeric);    // NaN or Inf in loss or gradient
LETHE_ERROR_KIND(InternalError, exit_code::kInternal);  // our bug

#undef LETHE_ERROR_KIND

/// Throws Kind with the formatted text.
template <class Kind, class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) {
  throw Kind(fmt::format(text, std::forward<Args>(args)...));
}

/// Throws InternalError: adds the caller's place in the source and asks for a report.
/// The builtins instead of std::source_location, which clang 14 (fuzzing, clang-tidy) does not
/// have.
[[noreturn]] void fail_internal(const std::string& text,
                                const char* file = __builtin_FILE(),
                                int line = __builtin_LINE());

}  // namespace lethe

/// LETHE_CHECK(ShapeError, x.dim() == 2, "op: x must be [T,D], got {} dims; ...", x.dim());
/// Text and arguments are evaluated only when the condition is false.
#define LETHE_CHECK(kind, cond, ...)             \
  do {                                           \
    if (!(cond)) [[unlikely]]                    \
      ::lethe::fail<::lethe::kind>(__VA_ARGS__); \
  } while (false)
