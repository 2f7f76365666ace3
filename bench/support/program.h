#pragma once

#include <cstdlib>
#include <exception>
#include <iostream>

#include <CLI/CLI.hpp>

#include "lethe/config/run_config.h"
#include "lethe/train/runtime.h"

namespace lethe::bench {

/// Parses; help and wrong flags end the program with CLI11's text and code.
inline void parse_or_exit(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));
  }
}

/// The body of main(): parse(argc, argv) gives options with `threads` (0 = LibTorch's choice), the
/// process is set up as for training with so many, run(options) does the rest. Returns the exit
/// code; an error is printed behind `name`.
template <class Parse, class Run>
int run_program(const char* name, int argc, char** argv, Parse&& parse, Run&& run) {
  wait_passively(argv);
  try {
    const auto options = parse(argc, argv);
    RunConfig config;
    config.threads = options.threads;
    prepare_runtime(config, /*float64=*/false);
    run(options);
  } catch (const std::exception& error) {
    std::cerr << name << ": " << error.what() << "\n";
    return 1;
  }
  return 0;
}

}  // namespace lethe::bench
