#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

// Which of its implementations an operator runs (spec 6 6.3). One selection for the process, made
// before the first step; an operator never changes it by itself.
namespace lethe::ops {

enum class Implementation {
  Auto,       // fused where the operator has a kernel for the tensor (CPU, float32 or what its
              // header says), else the reference: what a library user gets without choosing
  Reference,  // the definition in ATen
  Fused       // the kernel; a tensor that it does not take is a ConfigError
};

/// "auto", "none", "fused": the words of --dsa-kernel-backend. Throws ConfigError for another word.
[[nodiscard]] Implementation parse_implementation(std::string_view word);

/// One choice for all operators that have a kernel, and exceptions by operator name.
struct ImplementationChoice {
  Implementation all = Implementation::Auto;
  std::map<std::string, Implementation> overrides;  // e.g. {"sparse_attention", Reference}
};

/// Throws ConfigError naming an override whose operator has no kernel, with the nearest name.
void choose_implementations(const ImplementationChoice& choice);

/// Whether operators also look for mistakes of their callers that cost time to find (duplicate
/// indices of attention); off unless switched on. For the whole process, any thread may ask.
void set_checked_mode(bool on);
[[nodiscard]] bool checked_mode();

/// Operators that have a kernel, by name.
[[nodiscard]] std::vector<std::string> operators_with_kernels();

/// What ran since the last reset, e.g. {"rms_norm", "fused (avx2)"}, {"hadamard", "reference"};
/// both where both ran. Only operators that have a kernel are listed.
[[nodiscard]] std::map<std::string, std::string> implementations_that_ran();
void reset_implementations_that_ran();

}  // namespace lethe::ops
