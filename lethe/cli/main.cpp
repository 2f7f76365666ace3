#include <csignal>
#include <exception>
#include <filesystem>
#include <iostream>
#include <optional>

#include "lethe/base/error.h"
#include "lethe/base/log.h"
#include "lethe/cli/commands.h"
#include "lethe/cli/help.h"
#include "lethe/cli/parse.h"
#include "lethe/config/settings_text.h"
#include "lethe/train/runtime.h"

namespace {

int run_command(const lethe::Invocation& call,
                const lethe::ResolvedSettings& settings,
                std::optional<lethe::OpenedCheckpoint> checkpoint) {
  if (call.command == "train") return lethe::run_train(settings, std::move(checkpoint), std::cout);
  if (call.command == "generate") return lethe::run_generate(settings, call.positional, std::cout);
  if (call.command == "tokenize") return lethe::run_tokenize(settings, call.positional, std::cout);
  if (call.command == "data prepare")
    return lethe::run_prepare(settings, call.positional, std::cout);
  if (call.command == "runs") return lethe::run_runs(settings, call.positional, std::cout);
  if (call.command == "compare") return lethe::run_compare(settings, call.positional, std::cout);
  if (call.command == "units") return lethe::run_units(settings, std::cout);
  return lethe::run_docs(settings, std::cout);
}

int run(lethe::Invocation call) {
  if (call.help || call.command.empty()) {
    std::cout << lethe::help_text(call.command);
    return lethe::exit_code::kOk;
  }
  std::optional<lethe::OpenedCheckpoint> checkpoint;
  const lethe::CheckpointRequest wanted = lethe::requested_checkpoint(call.raw);
  if (call.command == "train" && !wanted.folder.empty()) {
    checkpoint = lethe::open_checkpoint(wanted.folder, wanted.allow_fallback);
    call.raw.checkpoint = lethe::settings_of(*checkpoint);
  }
  const lethe::ResolvedSettings settings = lethe::resolve(call.raw);
  for (const std::string& note : settings.notes) lethe::log_info("{}", note);
  if (call.print_config) {
    std::cout << lethe::print_config(settings);
    return lethe::exit_code::kOk;
  }
  if (call.dry_run) return lethe::run_dry(settings, std::cout);
  if (call.print_optimizer) return lethe::run_print_optimizer(settings, std::cout);
  const bool float64 =
      call.command == "compare" && settings.config.compare.dtype == lethe::CompareDtype::Fp64;
  lethe::prepare_runtime(settings.config, float64);
  return run_command(call, settings, std::move(checkpoint));
}

}  // namespace

int main(int argc, char** argv) {
  lethe::wait_passively(argv);
  std::signal(SIGXFSZ,
              SIG_IGN);  // a file-size limit is then an error of the write, which we report
  try {
    return run(lethe::parse_command_line({argv + 1, argv + argc}));
  } catch (const lethe::Error& error) {
    std::cerr << error.kind() << ": " << error.what() << "\n";
    return error.code();
  } catch (const std::filesystem::filesystem_error& error) {
    std::cerr << "DataError: " << error.what() << "; check the path and its permissions\n";
    return lethe::exit_code::kData;
  } catch (const std::exception& error) {
    std::cerr << "InternalError: " << error.what()
              << "; this is a bug in Lethe, please report it with the command\n";
    return lethe::exit_code::kInternal;
  }
}
