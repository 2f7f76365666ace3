#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <ostream>

#include "lethe/base/error.h"
#include "lethe/base/format.h"
#include "lethe/cli/commands.h"
#include "lethe/cli/progress_bar.h"
#include "lethe/config/toml_file.h"
#include "lethe/data/prepare.h"
#include "lethe/data/show_tokens.h"
#include "lethe/report/runs.h"
#include "lethe/report/runs_text.h"

// Commands that need no model.
namespace lethe {
namespace {

std::string text_of(const std::string& file) {
  if (file != "-") return read_config_text(file, "lethe tokenize");
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

// The text as one word of a shell command.
std::string shell_word(const std::string& text) {
  const bool is_plain = std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c >= 0x80 || std::strchr("/._-+,:=@%", c) != nullptr;
  });
  if (is_plain) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

TokenListing listing_of(TokenFormat format) {
  switch (format) {
    case TokenFormat::Ids:
      return TokenListing::Ids;
    case TokenFormat::Json:
      return TokenListing::Json;
    case TokenFormat::Table:
      break;
  }
  return TokenListing::Table;
}

PrepareSettings prepare_settings(const RunConfig& config, const std::vector<std::string>& inputs) {
  constexpr int64_t kMiB = 1 << 20;
  const PrepareConfig& p = config.prepare;
  return {.inputs = inputs,
          .output = p.output_prefix,
          .format = p.format,
          .tokenizer = config.tokenizer.empty() ? "bytes" : config.tokenizer,
          .end_of_document = p.end_of_document,
          .mask_prompts = p.mask_prompts,
          .overwrite = p.overwrite,
          .max_document_bytes = p.max_document_mb * kMiB};
}

}  // namespace

int run_tokenize(const ResolvedSettings& settings,
                 const std::vector<std::string>& positional,
                 std::ostream& out) {
  const RunConfig& config = settings.config;
  const Tokenizer tokenizer =
      config.tokenizer.empty() ? Tokenizer::bytes() : Tokenizer::from_file(config.tokenizer);
  for (const std::string& file : positional) {
    const std::string text = text_of(file);
    std::vector<int32_t> ids;
    try {
      tokenizer.encode(text, ids);
    } catch (const DataError& error) {
      fail<DataError>("{}: {}", file == "-" ? "standard input" : file, error.what());
    }
    out << show_tokens(tokenizer, ids, listing_of(config.tokenize.format));
  }
  return exit_code::kOk;
}

int run_prepare(const ResolvedSettings& settings,
                const std::vector<std::string>& positional,
                std::ostream& out) {
  ProgressBar bar(std::cerr);
  const PrepareReport report =
      prepare(prepare_settings(settings.config, positional), [&bar](const PrepareProgress& p) {
        bar.show({.done = p.bytes_done, .total = p.bytes_total, .before = p.bytes_before},
                 fmt::format("{} documents, {} tokens",
                             count_text(static_cast<double>(p.documents)),
                             count_text(static_cast<double>(p.tokens))));
      });
  bar.finish();
  if (report.resumed_at_bytes > 0)
    out << fmt::format("went on at {} of the input, where an earlier call stopped\n",
                       bytes_text(report.resumed_at_bytes));
  out << fmt::format("{} documents, {} tokens from {}",
                     report.documents,
                     report.tokens,
                     bytes_text(report.input_bytes));
  if (report.masked_tokens > 0)
    out << fmt::format(", {} of them prompts that do not count", report.masked_tokens);
  if (report.empty_documents > 0) out << fmt::format(", {} empty left out", report.empty_documents);
  out << "\n";
  if (report.hidden_skipped > 0)
    out << fmt::format("{} hidden files and folders skipped; name them as inputs to take them\n",
                       report.hidden_skipped);
  for (const std::string& file : report.files) out << "wrote   " << file << "\n";
  out << "train   lethe train --recipe tiny --data "
      << shell_word(settings.config.prepare.output_prefix);
  if (!settings.config.tokenizer.empty()) out << " --vocab-size " << report.vocab_size;
  out << "\n";
  return exit_code::kOk;
}

int run_runs(const ResolvedSettings& settings,
             const std::vector<std::string>& positional,
             std::ostream& out) {
  const RunsConfig& config = settings.config.runs;
  std::vector<std::filesystem::path> places(positional.begin(), positional.end());
  if (places.empty()) places.emplace_back("out");
  const auto folders = report::find_runs(places);
  if (config.compare) {
    const report::RunComparison comparison = report::compare_runs(folders);
    out << (config.json ? report::comparison_json(comparison)
                        : report::comparison_text(comparison));
  } else {
    const auto runs = report::summarize_runs(folders);
    out << (config.json ? report::runs_json(runs) : report::runs_text(runs));
  }
  return exit_code::kOk;
}

}  // namespace lethe
