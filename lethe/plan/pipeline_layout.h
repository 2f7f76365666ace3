#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

// Which layers stand on which pipeline stage (spec 3 5.5, spec 5 4.1 to 4.3).
namespace lethe {

/// What a stage holds, one character each as in the text form.
enum class StageItem : char { Embedding = 'E', Decoder = 't', Mtp = 'm', Loss = 'L' };

/// Stages in order; stage q belongs to pipeline rank q mod P and is its chunk q div P.
struct PipelineLayout {
  std::vector<std::vector<StageItem>> stages;
  std::string text;  // as given, for errors
  bool operator==(const PipelineLayout&) const = default;

  [[nodiscard]] int64_t count(StageItem item) const;
};

/// A layout as a text "Et*2|(tt|)*3,m|L" or as names of every stage.
using LayoutSource =
    std::variant<std::string, std::vector<std::vector<std::string>>, PipelineLayout>;

/// Reads the text form: '|' between stages, X*n or (group)*n repeats, n >= 1; a group may contain
/// '|' and repeats, but no group; commas only separate for the eye. Throws ConfigError with the
/// column (from 1): an unknown character, a blank, a nested or open group, a group without a count,
/// n = 0, a count broken by a comma, more than a million items.
[[nodiscard]] PipelineLayout parse_layout(std::string_view text);

/// Reads any form; the names of a list are embedding, decoder, mtp, loss in any case. Throws
/// ConfigError.
[[nodiscard]] PipelineLayout read_layout(const LayoutSource& source);

/// What a layout must fit.
struct LayoutNeeds {
  int64_t pipeline_ranks = 1;             // P
  std::optional<int64_t> virtual_stages;  // V; absent = whatever the layout has
  int64_t num_layers = 0;                 // L, without MTP blocks
  int64_t num_mtp = 0;
  bool overlap = false;  // forward-backward overlap: no chunk without a decoder layer
};

/// Throws one ConfigError with every broken rule V1 to V9, V12, V15 of spec 5 4.3.
void check_layout(const PipelineLayout& layout, const LayoutNeeds& needs);

/// Decoder layers (0-based, of the whole model) of every chunk of pipeline rank p: ids run through
/// the stages in order. The number of stages must be a multiple of pipeline_ranks.
[[nodiscard]] std::vector<std::vector<int64_t>> layers_of_rank(const PipelineLayout& layout,
                                                               int64_t pipeline_ranks,
                                                               int64_t p);

}  // namespace lethe
