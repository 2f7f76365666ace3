#include <cstdlib>
#include <exception>
#include <iostream>

#include <unistd.h>

#include "lethe/base/error.h"
#include "lethe/base/log.h"
#include "lethe/cli/commands.h"
#include "lethe/cli/help.h"
#include "lethe/cli/parse.h"
#include "lethe/config/settings_text.h"
#include "lethe/train/runtime.h"

namespace {

// OpenMP reads its environment when its library loads, which is before main: threads that spin
// while they wait make a two-thread step slower than one thread (spec 2 2.5), so the program starts
// itself again.
void wait_passively(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  setenv("OMP_WAIT_POLICY", "PASSIVE", 1);
  execv("/proc/self/exe", argv);  // returns only on failure; then we go on as we are
}

int run(const lethe::Invocation& call) {
  if (call.help || call.command.empty()) {
    std::cout << lethe::help_text(call.command);
    return lethe::exit_code::kOk;
  }
  const lethe::ResolvedSettings settings = lethe::resolve(call.raw);
  for (const std::string& note : settings.notes) lethe::log_info("{}", note);
  if (call.print_config) {
    std::cout << lethe::print_config(settings);
    return lethe::exit_code::kOk;
  }
  if (call.dry_run) return lethe::run_dry(settings, std::cout);
  lethe::prepare_runtime(settings.config.threads);
  if (call.command == "train") return lethe::run_train(settings, std::cout);
  if (call.command == "generate") return lethe::run_generate(settings, call.positional, std::cout);
  if (call.command == "compare") return lethe::run_compare(settings, call.positional, std::cout);
  return lethe::run_docs(settings, std::cout);
}

}  // namespace

int main(int argc, char** argv) {
  wait_passively(argv);
  try {
    return run(lethe::parse_command_line({argv + 1, argv + argc}));
  } catch (const lethe::Error& error) {
    std::cerr << error.kind() << ": " << error.what() << "\n";
    return error.code();
  } catch (const std::exception& error) {
    std::cerr << "InternalError: " << error.what()
              << "; this is a bug in Lethe, please report it with the command\n";
    return lethe::exit_code::kInternal;
  }
}
