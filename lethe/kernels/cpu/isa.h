#pragma once

#include <string_view>
#include <vector>

// Which instructions the kernels use. Every kernel under cpu/isa/ is compiled once per instruction
// set, each in a namespace of its own; the first call picks the best one that this CPU has.
namespace lethe::kernels {

enum class Isa { Portable, Avx2, Avx512 };

/// "portable", "avx2", "avx512".
[[nodiscard]] std::string_view isa_name(Isa isa);

/// Those compiled into this build that this CPU can execute, slowest first; never empty.
[[nodiscard]] const std::vector<Isa>& usable_isas();

/// The one in use: the best usable one unless use_isa chose another.
[[nodiscard]] Isa active_isa();

/// For tests and experiments: from now on, in the whole process. Not while a kernel runs.
/// Throws ConfigError when the CPU or the build lacks it.
void use_isa(Isa isa);

}  // namespace lethe::kernels
