#include "lethe/offload/swap_stats.h"

namespace lethe {

std::string_view verdict_text(SwapVerdict verdict) {
  constexpr std::array<std::string_view, kNumSwapVerdicts> kTexts = {"swapped",
                                                                     "owned already",
                                                                     "no tensor",
                                                                     "no gradients",
                                                                     "parameter",
                                                                     "empty",
                                                                     "not floating",
                                                                     "small",
                                                                     "slice",
                                                                     "foreign memory",
                                                                     "shared",
                                                                     "last layer",
                                                                     "MTP block"};
  return kTexts[static_cast<size_t>(verdict)];
}

SwapStats& SwapStats::operator+=(const SwapStats& other) {
  for (int64_t SwapStats::*const field : {&SwapStats::bytes_out,
                                          &SwapStats::bytes_in,
                                          &SwapStats::entries_out,
                                          &SwapStats::entries_in,
                                          &SwapStats::cancelled,
                                          &SwapStats::dropped,
                                          &SwapStats::prefetch_hits,
                                          &SwapStats::prefetch_misses,
                                          &SwapStats::wait_out_ns,
                                          &SwapStats::wait_in_ns})
    this->*field += other.*field;
  for (size_t i = 0; i < kNumSwapVerdicts; ++i) verdicts[i] += other.verdicts[i];
  return *this;
}

}  // namespace lethe
