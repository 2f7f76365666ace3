#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>

#include "lethe/base/error.h"
#include "lethe/data/prepare_sources_impl.h"
#include "lethe/data/text_files.h"

namespace lethe::detail {
namespace {

namespace fs = std::filesystem;

InputFormat format_of(const std::string& path, InputFormat asked) {
  if (asked != InputFormat::Auto) return asked;
  for (const std::string_view ending : {".gz", ".zst", ".bz2", ".xz", ".zip"})
    LETHE_CHECK(DataError,
                !path.ends_with(ending),
                "{}: must be text, got the name of a compressed file ({}); decompress it first, or "
                "say --input-format text to take its bytes as they are",
                path,
                ending);
  const bool is_jsonl = path.ends_with(".jsonl") || path.ends_with(".ndjson");
  return is_jsonl ? InputFormat::Jsonl : InputFormat::Text;
}

// An output among the inputs would become an input of the next call.
void check_outside(const PrepareSettings& s, const std::string& folder) {
  std::error_code ignored;  // what cannot be resolved is compared as it is written
  const fs::path inside =
      fs::weakly_canonical(fs::absolute(s.output), ignored)
          .lexically_relative(fs::weakly_canonical(fs::absolute(folder), ignored));
  LETHE_CHECK(ConfigError,
              inside.empty() || *inside.begin() == "..",
              "data prepare: the output must not lie in an input folder, got '{}' in '{}'; choose "
              "another place",
              s.output,
              folder);
}

}  // namespace

std::string_view format_name(InputFormat format) {
  switch (format) {
    case InputFormat::Auto:
      return "auto";
    case InputFormat::Text:
      return "text";
    case InputFormat::Lines:
      return "lines";
    case InputFormat::Jsonl:
      return "jsonl";
  }
  fail_internal("format_name: not a format");
}

void check_settings(const PrepareSettings& s) {
  LETHE_CHECK(ConfigError,
              !s.inputs.empty(),
              "data prepare: must have at least one input file or folder, got none; name one");
  LETHE_CHECK(ConfigError,
              fs::path(s.output).has_filename(),
              "data prepare: the output must be a path that ends in a name, got '{}'; for "
              "'corpus/train' the files are corpus/train.bin and corpus/train.idx",
              s.output);
  LETHE_CHECK(
      ConfigError,
      s.max_document_bytes >= 1 && s.mark_bytes >= 1,
      "data prepare: the limits must be >= 1 byte, got {} for a document and {} for a mark; "
      "correct the setting",
      s.max_document_bytes,
      s.mark_bytes);
}

Sources find_sources(const PrepareSettings& s) {
  Sources sources;
  std::map<FileId, size_t> input_of;  // links within one folder may lead to one file
  for (size_t i = 0; i < s.inputs.size(); ++i) {
    const TextFiles found = find_text_files(s.inputs[i]);
    if (found.is_folder) check_outside(s, s.inputs[i]);
    sources.hidden_skipped += found.hidden_skipped;
    for (const TextFile& file : found.files) {
      const std::string path = file.path.string();
      const auto facts = file_facts(file.path);
      LETHE_CHECK(DataError,
                  facts.has_value(),
                  "{}: must stay there while the inputs are listed, got nothing there; is another "
                  "program at work in its folder?",
                  path);
      const size_t first = input_of.emplace(facts->id, i).first->second;
      LETHE_CHECK(ConfigError,
                  first == i,
                  "data prepare: a file must be given once, got '{}' in the inputs '{}' and '{}'; "
                  "leave one out",
                  path,
                  s.inputs[first],
                  s.inputs[i]);
      sources.files.push_back({path, facts->bytes, format_of(path, s.format), facts->id});
    }
  }
  LETHE_CHECK(
      DataError,
      !sources.files.empty(),
      "data prepare: the inputs must have at least one file, got none in '{}'; name another "
      "folder",
      s.inputs.front());
  return sources;
}

}  // namespace lethe::detail
