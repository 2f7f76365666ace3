#include "lethe/train/reference_docs.h"

#include <filesystem>

#include <fmt/ranges.h>

#include "lethe/base/error.h"
#include "lethe/config/contract_table.h"
#include "lethe/config/settings_text.h"
#include "lethe/io/atomic_file.h"
#include "lethe/ops/registry.h"
#include "lethe/plan/event.h"
#include "lethe/plan/save_targets.h"
#include "lethe/plan/subgraph.h"

namespace lethe {
namespace {

std::string operators_page() {
  std::string page =
      "# Operators\n\nRegistered in namespace `lethe`; from Python: `torch.ops.lethe.NAME` after "
      "`torch.ops.load_library(\"liblethe.so\")`.\nThe contract of each is its header, "
      "`lethe/ops/NAME.h`; its definition `lethe/ops/reference/NAME.cpp`.\n\n"
      "| schema | devices | own gradient |\n|---|---|---|\n";
  for (const ops::OperatorInfo& op : ops::registered_operators())
    page += fmt::format("| `{}` | {} | {} |\n",
                        op.schema,
                        fmt::join(op.devices, ", "),
                        op.differentiable ? "yes" : "no");
  return page;
}

const char* quant_text(QuantClass quant) {
  constexpr const char* kTexts[] = {"Q8", "Q4", "KB", "KF", "KI"};
  return kTexts[static_cast<size_t>(quant)];
}

const char* when_text(When when) {
  constexpr const char* kTexts[] = {
      "always", "ratio > 0", "ratio 4", "hash layers", "scored layers"};
  return kTexts[static_cast<size_t>(when)];
}

std::string weights_page() {
  std::string page =
      "# Weight contract\n\nOne row per family of tensors, in contract order. Names below a layer "
      "or block are "
      "suffixes; `{e}` is the global expert. Classes: Q8 block FP8, Q4 packed FP4, KB keep bf16, "
      "KF keep fp32, "
      "KI integer.\n\n| internal (Megatron) | hub | transformers | class | fp32 in memory | "
      "present |\n"
      "|---|---|---|---|---|---|\n";
  for (const ContractRow& row : contract_table()) {
    const std::string hub = row.hub_up.empty() ? fmt::format("`{}`", row.hub)
                                               : fmt::format("`{}`, `{}`", row.hub, row.hub_up);
    page += fmt::format("| `{}` | {} | `{}` | {} | {} | {} |\n",
                        row.internal,
                        hub,
                        row.transformers,
                        quant_text(row.quant),
                        row.fp32_memory ? "yes" : "no",
                        when_text(row.when));
  }
  return page;
}

std::string layer_page() {
  std::string page =
      "# Layer program\n\nOne layer is this list of nodes; each ends in the event of its name. "
      "Every execution mode "
      "runs the same nodes.\n\n| # | node | event |\n|---|---|---|\n";
  for (int i = 1; i <= static_cast<int>(Event::MlpPostEnd); ++i)
    page += fmt::format("| {} | `{}` | `{}` |\n",
                        i,
                        node_name(static_cast<Event>(i)),
                        event_name(static_cast<Event>(i)));
  return page;
}

const char* mechanism_text(Mechanism mechanism) {
  constexpr const char* kTexts[] = {"inside and output", "inside", "never a region"};
  return kTexts[static_cast<size_t>(mechanism)];
}

std::string recompute_page() {
  std::string page =
      "# Recompute\n\nThe parts of a layer that a plan can release, in the order in which they "
      "come back. "
      "Which settings choose "
      "them: [settings](settings.md).\n\n| sub-graph | spec | from | to | released | what |\n"
      "|---|---|---|---|---|---|\n";
  for (const SubgraphInfo& part : subgraphs())
    if (can_be_region(part.id))
      page += fmt::format("| `{}` | {} | `{}` | `{}` | {} | {} |\n",
                          part.name,
                          part.label,
                          node_name(part.first),
                          node_name(part.last),
                          mechanism_text(part.mechanism),
                          part.what);
  page +=
      "\n## Save units\n\nWhat `--save-units` keeps inside layers that are recomputed whole; "
      "`lethe units` lists "
      "the layers of a model.\n\n| unit | kept results of |\n|---|---|\n";
  for (const SaveTarget& target : deepseek_v4_save_targets().targets)
    page += fmt::format(
        "| `{}` | `{}` |\n", save_unit_name(target.unit), fmt::join(target.names, "`, `"));
  return page;
}

std::string errors_page() {
  const std::pair<const char*, int> kinds[] = {
      {"ConfigError, ShapeError, DtypeError, RecomputeError, SwapError: what you asked for",
       exit_code::kUsage},
      {"OutOfArena: it does not fit the bytes you allowed", exit_code::kDoesNotFit},
      {"DataError, CheckpointError: a file", exit_code::kData},
      {"CommError: other ranks", exit_code::kComm},
      {"NumericError: NaN or Inf in loss or gradient", exit_code::kNumeric},
      {"InternalError: our bug", exit_code::kInternal}};
  std::string page =
      "# Exit codes\n\n| code | meaning |\n|---|---|\n| 0 | done |\n| 1 | the check you asked for "
      "failed (`compare`) |\n";
  for (const auto& [text, code] : kinds) page += fmt::format("| {} | {} |\n", code, text);
  return page + "| 128 + n | ended by signal n, after a clean stop |\n";
}

}  // namespace

std::map<std::string, std::string> reference_pages() {
  return {{"operators.md", operators_page()},
          {"weights.md", weights_page()},
          {"layer.md", layer_page()},
          {"recompute.md", recompute_page()},
          {"exit_codes.md", errors_page()},
          {"settings.md", settings_markdown()}};
}

std::vector<std::string> write_reference_pages(const std::string& folder) {
  ensure_writable_folder(folder);
  std::vector<std::string> paths;
  for (const auto& [name, text] : reference_pages()) {
    paths.push_back((std::filesystem::path(folder) / name).string());
    write_file_atomically(paths.back(), text);
  }
  return paths;
}

}  // namespace lethe
