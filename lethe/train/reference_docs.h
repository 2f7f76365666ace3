#pragma once

#include <map>
#include <string>
#include <vector>

namespace lethe {

/// The reference pages that the program prints about itself, by file name: operators.md from the
/// registry, settings.md from the schema of settings, weights.md from the contract table, layer.md
/// from the layer program, recompute.md from its sub-graphs and save units, exit_codes.md.
/// Generated, so that they cannot drift; a test compares the committed pages.
std::map<std::string, std::string> reference_pages();

/// Writes them into the folder (made where missing); returns the paths.
std::vector<std::string> write_reference_pages(const std::string& folder);

}  // namespace lethe
