#pragma once

#include "lethe/kernels/cpu/isa.h"

// Inside lethe/kernels/cpu only: the bridge from a kernel's public name to its compiled variants.

#ifdef LETHE_KERNELS_X86
#define LETHE_X86_VARIANTS(X, ...) X(avx2, __VA_ARGS__) X(avx512, __VA_ARGS__)
#define LETHE_X86_CASES(name, arguments) \
  case Isa::Avx2:                        \
    return avx2::name arguments;         \
  case Isa::Avx512:                      \
    return avx512::name arguments;
#else
#define LETHE_X86_VARIANTS(X, ...)
#define LETHE_X86_CASES(name, arguments) \
  case Isa::Avx2:                        \
  case Isa::Avx512:                      \
    break;
#endif

#define LETHE_DECLARE_VARIANT(isa, result, name, Arguments) \
  namespace isa {                                           \
  result name(const Arguments& a);                          \
  }

/// Defines `result name(const Arguments& a)`, declared by the kernel's public header, as the
/// variant of the active instruction set. Use it inside namespace lethe::kernels; the variants are
/// lethe::kernels::LETHE_ISA::name in cpu/isa/.
#define LETHE_DISPATCH_ISA(result, name, Arguments)                  \
  LETHE_DECLARE_VARIANT(portable, result, name, Arguments)           \
  LETHE_X86_VARIANTS(LETHE_DECLARE_VARIANT, result, name, Arguments) \
  result name(const Arguments& a) {                                  \
    switch (active_isa()) {                                          \
      LETHE_X86_CASES(name, (a))                                     \
      case Isa::Portable:                                            \
        break;                                                       \
    }                                                                \
    return portable::name(a);                                        \
  }
