#pragma once

#include <filesystem>
#include <iosfwd>
#include <vector>

#include "lethe/config/run_config.h"
#include "lethe/train/compare_row.h"

namespace lethe {

/// Runs the model of a golden directory (config.json, weights.safetensors or model.safetensors,
/// inputs) forward and backward and compares every tensor, every gradient and every selected index
/// with what the directory expects. Rows come worst first; what the directory lacks is listed as
/// not compared. Throws ConfigError, DataError, CheckpointError for a directory that cannot be
/// read.
std::vector<CompareRow> compare_folder(const std::filesystem::path& folder, CompareDtype dtype);

/// No row missed, and at least one was compared.
bool all_pass(const std::vector<CompareRow>& rows);

/// A table for people, or with json one array of objects with the same fields.
void print_rows(const std::vector<CompareRow>& rows, bool json, std::ostream& out);

}  // namespace lethe
