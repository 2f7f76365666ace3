#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "lethe/config/resolve.h"
#include "lethe/train/training_state.h"

namespace lethe {

/// What resolve() needs from the checkpoint of --load.
CheckpointSettings settings_of(const OpenedCheckpoint& checkpoint);

/// Trains, then writes the report; the result of a run that a signal ended is 128 + its number.
int run_train(const ResolvedSettings& settings,
              std::optional<OpenedCheckpoint> checkpoint,
              std::ostream& out);

/// Prints how every parameter would be updated. Starts nothing.
int run_print_optimizer(const ResolvedSettings& settings, std::ostream& out);

/// Prints what the sizes alone decide (parameters, tensors of a checkpoint, bytes of parameters,
/// gradients and optimizer) and the recompute plan, which --save-recompute-plan also writes. Starts
/// nothing.
int run_dry(const ResolvedSettings& settings, std::ostream& out);

/// Prints the prompt and a sample from positional[0], a model folder.
int run_generate(const ResolvedSettings& settings,
                 const std::vector<std::string>& positional,
                 std::ostream& out);

/// Compares positional[0], a golden directory; 1 when any tensor misses.
int run_compare(const ResolvedSettings& settings,
                const std::vector<std::string>& positional,
                std::ostream& out);

/// Prints the tokens of the files positional; "-" is the standard input.
int run_tokenize(const ResolvedSettings& settings,
                 const std::vector<std::string>& positional,
                 std::ostream& out);

/// Makes a token data set of the files and folders positional.
int run_prepare(const ResolvedSettings& settings,
                const std::vector<std::string>& positional,
                std::ostream& out);

/// Lists or compares the runs below the folders positional.
int run_runs(const ResolvedSettings& settings,
             const std::vector<std::string>& positional,
             std::ostream& out);

/// Prints what each save unit of the model covers.
int run_units(const ResolvedSettings& settings, std::ostream& out);

/// Writes the reference pages.
int run_docs(const ResolvedSettings& settings, std::ostream& out);

}  // namespace lethe
