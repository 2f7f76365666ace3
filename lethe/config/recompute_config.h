#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lethe/config/save_unit.h"

namespace lethe {

/// Full: whole layers. Selective: the parts that recompute_modules names.
enum class RecomputeGranularity : uint8_t { None, Full, Selective };

/// Uniform: the input of every `num_layers` layers stays. Block: the first num_layers layers of a
/// stage are recomputed, each by itself.
enum class RecomputeMethod : uint8_t { None, Uniform, Block };

/// Parts of --recompute-modules (Megatron's names).
enum class RecomputeModule : uint8_t {
  CoreAttn,
  MoeAct,
  Layernorm,
  MlaUpProj,
  Mlp,
  Moe,
  SharedExperts,
  Mhc,
};

/// Whether MTP blocks take part in recompute (spec 3 7.2); Skip is the behaviour of seed 000.
enum class MtpSelection : uint8_t { Include, Skip };

/// What the runtime verifies (spec 3 4.5). Checked: every replay gives the shapes and values of
/// forward, draws no random numbers that it did not say, happens once, and leaves nothing behind.
/// Bitwise asks for the hashes of values by name; the engine compares them under Checked too.
enum class PlanChecks : uint8_t { Off, Checked, Bitwise };

/// A save unit of which no name resolves in the model (spec 3 R6.9).
enum class MissingUnits : uint8_t { Error, Warn };

/// What a user wants recomputed (spec 3 3.1, 5, 6.1; command-line spec 7.4). `ratio` and the
/// flags of layers decide which layers, `save` decides what stays resident inside them. A value:
/// resolved once, then read-only.
struct RecomputeConfig {
  RecomputeGranularity granularity = RecomputeGranularity::None;
  RecomputeMethod method = RecomputeMethod::None;
  std::optional<int64_t> num_layers;  // F: Block: layers of a stage; Uniform: layers of a chunk
  bool per_pp_rank = false;           // num_layers counts per pipeline rank, not per chunk
  std::vector<std::string> modules = {"core_attn"};  // of Selective; names of RecomputeModule
  bool csa_attention = false;                        // sub-graphs of the attention
  bool csa_keep_output = false;                      // keeps attn_out in these layers
  bool mhc = false;                                  // mHC pre and post
  int64_t mhc_layer_num = 1;                         // B: layers of an mHC block
  bool norm = false;                       // norms; the query's joins the attention's sub-graph
  std::optional<int64_t> norm_num_layers;  // N; unset = every layer
  MtpSelection mtp = MtpSelection::Include;
  std::optional<double> ratio;         // share of the layers that are recomputed whole, 0 to 1
  std::optional<double> vision_ratio;  // the same for a vision tower
  std::optional<double> fsdp_ratio;    // deprecated places of the two above (R6.28)
  std::optional<double> fsdp_vision_ratio;
  SaveSelection save;
  /// Units of `save` whose kept results may be written to before backward, which reads what was
  /// written last; of others that is an error (R6.19). All: every unit that is kept.
  SaveSelection allow_mutation;
  MissingUnits missing_units = MissingUnits::Error;
  std::optional<std::string> plan_file;  // read instead of all of the above
  // What a run writes and verifies, whatever it recomputes.
  std::string save_plan_file;  // empty = none
  PlanChecks checks = PlanChecks::Off;
  bool stats = false;  // a line per region and step
  bool operator==(const RecomputeConfig&) const = default;
};

/// "core_attn" and so on.
[[nodiscard]] std::string_view module_name(RecomputeModule module);

/// Every module name, in the order of RecomputeModule.
[[nodiscard]] const std::vector<std::string>& module_names();

/// True where modules has this one (and the granularity reads it).
[[nodiscard]] bool recomputes_module(const RecomputeConfig& config, RecomputeModule module);

/// --mhc-recompute, or its module.
[[nodiscard]] bool recomputes_mhc(const RecomputeConfig& config);

/// --recompute-norm, or its module.
[[nodiscard]] bool recomputes_norms(const RecomputeConfig& config);

/// Something is asked to be recomputed, by a flag or a plan file.
[[nodiscard]] bool recomputes_anything(const RecomputeConfig& config);

/// Whole layers are recomputed, by granularity or by ratio.
[[nodiscard]] bool recomputes_layers(const RecomputeConfig& config);

/// Moves ratios from their deprecated places and adds a note with the new spelling to notes
/// (R6.29). Throws ConfigError where both places are set, even to the same value (R6.30). Unset is
/// nothing, not 1: with 1 as the default every run would ask for a move (R6.31).
[[nodiscard]] RecomputeConfig with_moved_ratios(RecomputeConfig config,
                                                std::vector<std::string>& notes);

}  // namespace lethe
