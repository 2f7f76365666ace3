#pragma once

// The limits of the numerical classes (spec 0-style 6.3), all relative to the rms of the expected
// tensor.
namespace lethe::test {

inline constexpr double kGoldenFp64 = 1e-12;     // unit golden data, README of tests/golden
inline constexpr double kSameMathsFp64 = 1e-12;  // two float64 ways to one result
inline constexpr double kSameMathsFp32 = 1e-5;   // class E2

}  // namespace lethe::test
