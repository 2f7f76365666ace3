#include "lethe/config/settings_table_impl.h"

// What waits for its backward in a host tier: command-line spec 7.4.
namespace lethe::detail {

void add_swap_settings(SettingTable& t) {
  constexpr auto kSwap = &RunConfig::swap;
  using S = SwapConfig;
  t.section("memory", "Swap: layer inputs in a host tier", command::kTrain, OnResume::Free);
  t.bind(
      "swap-layer-input",
      kSwap,
      &S::layer_input,
      "Keep the inputs of layers in a host tier between forward and backward; the last layer and "
      "MTP blocks keep theirs.");
  t.bind("offload-budget-mb",
         kSwap,
         &S::offload_budget_mb,
         "MiB of the host tier, for all micro-batches under way together.")
      .at_least(1)
      .at_most(1e7);
  t.bind("offload-folder",
         kSwap,
         &S::offload_folder,
         "Folder of a disk: the host tier is a nameless file in it instead of memory.")
      .default_note("memory");
  t.bind("swap-prefetch-distance",
         kSwap,
         &S::prefetch_distance,
         "Swapped inputs that come back ahead of the layer in backward.")
      .at_least(0);
  t.bind("swap-min-bytes", kSwap, &S::min_bytes, "Layer inputs with fewer bytes stay.").at_least(0);
}

}  // namespace lethe::detail
