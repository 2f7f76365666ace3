#include "lethe/cli/commands.h"

#include <filesystem>
#include <ostream>

#include "lethe/base/error.h"
#include "lethe/base/format.h"
#include "lethe/config/contract.h"
#include "lethe/config/settings_text.h"
#include "lethe/report/html_report.h"
#include "lethe/train/compare.h"
#include "lethe/train/generate.h"
#include "lethe/train/model_folder.h"
#include "lethe/train/recompute_choice.h"
#include "lethe/train/reference_docs.h"
#include "lethe/train/run_files.h"
#include "lethe/train/step.h"
#include "lethe/train/trainer.h"
#include "lethe/train/training_state.h"

namespace lethe {
namespace {

const std::string& the_folder(const std::vector<std::string>& positional,
                              const char* command,
                              const char* what) {
  LETHE_CHECK(ConfigError,
              positional.size() == 1,
              "{}: takes one folder ({}), got {} words; see lethe {} --help",
              command,
              what,
              positional.size(),
              command);
  return positional.front();
}

// The text that ships with the program: beside the build folder, or in the installed tree.
std::string bundled_text() {
  const std::filesystem::path bin = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  for (const char* place :
       {"../../examples/data/shakespeare.txt", "../share/lethe/shakespeare.txt"})
    if (std::filesystem::exists(bin / place)) return (bin / place).lexically_normal().string();
  fail<DataError>(
      "--data: must name a text, got none and the bundled one is not beside {}; pass a file or a "
      "folder",
      bin.string());
}

}  // namespace

CheckpointSettings settings_of(const OpenedCheckpoint& checkpoint) {
  const RunIdentity identity = read_identity(checkpoint);
  return {.text = identity.settings,
          .origin = fmt::format("checkpoint {}", checkpoint.folder().string()),
          .hub_kept = identity.hub_kept};
}

int run_train(const ResolvedSettings& settings,
              std::optional<OpenedCheckpoint> checkpoint,
              std::ostream& out) {
  TrainRequest request{.config = settings.config,
                       .hub_kept = settings.hub_kept,
                       .settings_text = print_config(settings),
                       .settings = deciding_settings(settings.config),
                       .checkpoint = std::move(checkpoint)};
  if (request.config.train.data.empty()) request.config.train.data = bundled_text();
  Trainer trainer(std::move(request), out);
  const TrainResult result = trainer.run();
  const std::string page =
      (std::filesystem::path(settings.config.train.output) / "report.html").string();
  report::make_report(result.record_file, page);
  out << "model   " << result.model_folder << "\nrecord  " << result.record_file << "\nreport  "
      << page << "\n";
  if (result.reason != "finished")
    out << "resume  lethe train --load " << checkpoint_folder(settings.config).string()
        << "  (stopped at step " << result.steps << ": " << result.reason << ")\n";
  out << "sample  lethe generate " << result.model_folder << "\n";
  return result.signal != 0 ? exit_code::kSignal + result.signal : exit_code::kOk;
}

int run_print_optimizer(const ResolvedSettings& settings, std::ostream& out) {
  out << optimizer_table(settings.config);
  return exit_code::kOk;
}

int run_dry(const ResolvedSettings& settings, std::ostream& out) {
  const auto params = contract(settings.config.model);
  const ParamTotals totals = param_totals(settings.config.model);
  const SizePrediction sizes = predict_sizes(settings.config);
  const RecomputeChoice choice = choose_recompute(settings.config);
  out << fmt::format("parameters         {} ({} layers, {} embedding and heads, {} MTP)\n",
                     totals.total(),
                     totals.layers,
                     totals.top,
                     totals.mtp)
      << fmt::format("active per token   {}\n", totals.active_per_token)
      << fmt::format("hub tensors        {}\n", disk_tensors(params, Dialect::Hub).size())
      << fmt::format("parameter bytes    {} ({})\n", sizes.parameters, bytes_text(sizes.parameters))
      << fmt::format("gradient bytes     {} ({})\n", sizes.gradients, bytes_text(sizes.gradients))
      << fmt::format("optimizer bytes    {} ({})\n", sizes.optimizer, bytes_text(sizes.optimizer))
      << "activations        not predicted by this build; a step's exact bytes are in the run "
         "record\n"
      << plan_page(settings.config, choice);
  save_chosen_plan(settings.config, choice);
  return exit_code::kOk;
}

int run_generate(const ResolvedSettings& settings,
                 const std::vector<std::string>& positional,
                 std::ostream& out) {
  const std::filesystem::path folder =
      the_folder(positional, "generate", "with config.json and model.safetensors");
  const auto model = read_model_folder(folder, "model.safetensors", {});
  const Tokenizer tokenizer = read_tokenizer(folder, settings.config.tokenizer, model->config());
  out << settings.config.generate.prompt;
  generate(*model, tokenizer, settings.config.generate, [&](std::string_view bytes) {
    out << bytes << std::flush;
  });
  out << "\n";
  return exit_code::kOk;
}

int run_compare(const ResolvedSettings& settings,
                const std::vector<std::string>& positional,
                std::ostream& out) {
  const auto rows = compare_folder(the_folder(positional, "compare", "of expected tensors"),
                                   settings.config.compare.dtype);
  print_rows(rows, settings.config.compare.json, out);
  return all_pass(rows) ? exit_code::kOk : exit_code::kCheckFailed;
}

int run_units(const ResolvedSettings& settings, std::ostream& out) {
  out << units_page(settings.config);
  return exit_code::kOk;
}

int run_docs(const ResolvedSettings& settings, std::ostream& out) {
  for (const std::string& path : write_reference_pages(settings.config.docs.out))
    out << path << "\n";
  return exit_code::kOk;
}

}  // namespace lethe
