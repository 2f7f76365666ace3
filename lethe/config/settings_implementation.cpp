#include "lethe/base/error.h"
#include "lethe/config/operator_exceptions.h"
#include "lethe/config/settings_table_impl.h"

// Flags that choose implementations: command-line spec 6.3 and 7.2.
namespace lethe::detail {
namespace {

constexpr CommandSet kComputes = command::kTrain | command::kGenerate | command::kCompare;

std::string refuse_malformed(SettingValue& value, std::vector<std::string>&) {
  try {
    static_cast<void>(operator_exceptions(std::get<std::string>(value)));
  } catch (const ConfigError&) {
    return "NAME=auto, NAME=none or NAME=fused, each operator once, with commas between";
  }
  return "";
}

}  // namespace

void add_implementation_settings(SettingTable& t) {
  t.section("impl", "Implementation choice", kComputes, OnResume::Changeable);
  t.bind_enum(
       "dsa-kernel-backend",
       &RunConfig::implementation,
       &ImplementationConfig::dsa_kernel_backend,
       {"auto", "none", "fused"},
       "Operators: Lethe's kernels (fused) or their definitions in ATen (none); auto = fused "
       "where this build has kernels for the device and the computing type, else none.")
      .choices({"auto", "none", "fused"}, {"tilelang", "cudnn"});
  t.bind("operator-implementation",
         &RunConfig::implementation,
         &ImplementationConfig::operators,
         "Exceptions for single operators, for experiments: sparse_attention=none,rms_norm=fused.")
      .default_note("none")
      .note("NAME=auto, NAME=none or NAME=fused, each operator once, with commas between")
      .refine(refuse_malformed);
  t.section("impl", "Implementation choice", command::kAll);
  t.not_built("leave it out: this build has the packed implementation",
              {"dsv4-impl",
               "qkv-format",
               "dsv4-topk-backend",
               "miles-dsa-topk-backend",
               "force-unfused-dsa",
               "use-dynamic-batch-size",
               "max-tokens-per-gpu",
               "allow-experimental"});
  t.not_built("leave it out: documents are kept apart in every run", {"reset-attention-mask"});
  t.not_built("leave it out: every operator of this build is deterministic",
              {"deterministic-mode"});
  t.not_built("use --model dsv4", {"spec"});
}

}  // namespace lethe::detail
