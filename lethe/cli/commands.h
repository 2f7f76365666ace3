#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "lethe/config/resolve.h"

namespace lethe {

/// Trains, then writes the report; the result of a run that a signal ended is 128 + its number.
int run_train(const ResolvedSettings& settings, std::ostream& out);

/// Checks nothing more than resolve() did, and prints what the sizes alone decide: parameters,
/// tensors of a checkpoint, bytes of parameters, gradients and optimizer. Starts nothing.
int run_dry(const ResolvedSettings& settings, std::ostream& out);

/// Prints the prompt and a sample from positional[0], a model folder.
int run_generate(const ResolvedSettings& settings,
                 const std::vector<std::string>& positional,
                 std::ostream& out);

/// Compares positional[0], a golden directory; 1 when any tensor misses.
int run_compare(const ResolvedSettings& settings,
                const std::vector<std::string>& positional,
                std::ostream& out);

/// Writes the reference pages.
int run_docs(const ResolvedSettings& settings, std::ostream& out);

}  // namespace lethe
