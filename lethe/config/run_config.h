#pragma once

#include <cstdint>
#include <string>

#include "lethe/config/model_config.h"
#include "lethe/config/recompute_config.h"
#include "lethe/config/swap_config.h"
#include "lethe/config/train_config.h"

namespace lethe {

/// `lethe generate`: a sample from a trained model.
struct GenerateConfig {
  std::string prompt = "\n";  // text before the first generated token
  int64_t max_new_tokens = 300;
  double temperature = 0.8;  // 0 = always the likeliest token
  double top_p = 1;          // share of the probability that is kept
  int64_t top_k = 0;         // likeliest tokens that are kept; 0 = all
  int64_t seed = 1234;       // of the draws
  bool operator==(const GenerateConfig&) const = default;
};

/// Element type that `lethe compare` computes in.
enum class CompareDtype { Fp32, Fp64 };

/// `lethe compare`: a model against expected tensors.
struct CompareConfig {
  CompareDtype dtype = CompareDtype::Fp32;
  bool json = false;  // rows as JSON, for programs
  bool operator==(const CompareConfig&) const = default;
};

/// `lethe docs`: the generated reference pages.
struct DocsConfig {
  std::string out = "docs/reference";  // folder
  bool operator==(const DocsConfig&) const = default;
};

/// How `lethe tokenize` writes.
enum class TokenFormat { Table, Ids, Json };

/// `lethe tokenize`: the tokens of texts.
struct TokenizeConfig {
  TokenFormat format = TokenFormat::Table;
  bool operator==(const TokenizeConfig&) const = default;
};

/// How input files of `lethe data prepare` become documents.
enum class InputFormat {
  Auto,   // by the file's name: *.jsonl and *.ndjson as Jsonl, others as Text
  Text,   // a file is a document
  Lines,  // a line is a document, without its line end; blank lines are skipped
  Jsonl,  // a line is a record (data/jsonl.h); blank lines are skipped
};

/// `lethe data prepare`: text to a token data set.
struct PrepareConfig {
  std::string output_prefix;  // NAME of NAME.bin, NAME.idx, ...
  InputFormat format = InputFormat::Auto;
  std::string end_of_document;  // token behind every document; empty = none
  bool mask_prompts = true;
  bool overwrite = false;
  int64_t max_document_mb = 256;
  bool operator==(const PrepareConfig&) const = default;
};

/// `lethe runs`: runs in a table, or side by side.
struct RunsConfig {
  bool compare = false;
  bool json = false;
  bool operator==(const RunsConfig&) const = default;
};

/// `lethe units`: what each save unit covers.
struct UnitsConfig {
  bool json = false;
  bool operator==(const UnitsConfig&) const = default;
};

/// Which implementation of the operators a command runs (command-line spec 6.3).
enum class KernelBackend {
  Auto,  // Fused where this build has kernels for the device and the computing type, else None
  None,  // the definitions in ATen
  Fused  // Lethe's kernels
};

struct ImplementationConfig {
  KernelBackend dsa_kernel_backend = KernelBackend::Auto;
  std::string operators;  // exceptions, "NAME=none,NAME=fused"; see operator_exceptions
  bool operator==(const ImplementationConfig&) const = default;
};

/// Everything the settings decide; each command reads its own part.
struct RunConfig {
  ModelConfig model;
  TrainConfig train;
  CheckpointConfig checkpoint;
  RecomputeConfig recompute;
  SwapConfig swap;
  GenerateConfig generate;
  CompareConfig compare;
  DocsConfig docs;
  TokenizeConfig tokenize;
  PrepareConfig prepare;
  RunsConfig runs;
  UnitsConfig units;
  ImplementationConfig implementation;
  std::string tokenizer;  // a tokenizer.json; empty = bytes, or that of the model's folder
  int64_t threads = 0;    // of the CPU; 0 = all
  bool operator==(const RunConfig&) const = default;
};

/// The values before any recipe, file or flag.
[[nodiscard]] RunConfig built_in_config();

}  // namespace lethe
