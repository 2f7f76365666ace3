#include "lethe/config/settings_table_impl.h"

// Flags of the small commands.
namespace lethe::detail {
namespace {

void add_prepare(SettingTable& t) {
  constexpr auto kPrepare = &RunConfig::prepare;
  using P = PrepareConfig;
  t.section("prepare", "Data set", command::kPrepare);
  t.bind("output-prefix", kPrepare, &P::output_prefix, "NAME of NAME.bin, NAME.idx and the rest.")
      .required()
      .note("not empty")
      .refine(refuse_empty);
  t.bind_enum("input-format",
              kPrepare,
              &P::format,
              {"auto", "text", "lines", "jsonl"},
              "A document is a file (text), a line (lines) or a record (jsonl: \"text\", or "
              "\"prompt\" and \"response\"); auto = by the file's name.");
  t.bind("end-of-document",
         kPrepare,
         &P::end_of_document,
         "Token behind every document, by its text in the tokenizer.")
      .default_note("none");
  t.bind("mask-prompts", kPrepare, &P::mask_prompts, "Prompts do not count in the loss.");
  t.bind("max-document-mb",
         kPrepare,
         &P::max_document_mb,
         "Largest line, and largest file that is tokenized as one document.")
      .at_least(1);
}

}  // namespace

std::string refuse_empty(SettingValue& value, std::vector<std::string>&) {
  return std::get<std::string>(value).empty() ? "not empty" : "";
}

void add_command_settings(SettingTable& t) {
  t.section("generate", "Generation", command::kGenerate);
  t.bind("prompt", &RunConfig::generate, &GenerateConfig::prompt, "Text to continue.")
      .note("not empty")
      .refine(refuse_empty);
  t.bind("max-new-tokens",
         &RunConfig::generate,
         &GenerateConfig::max_new_tokens,
         "Tokens to generate.")
      .at_least(1);
  t.bind("temperature",
         &RunConfig::generate,
         &GenerateConfig::temperature,
         "Divides the logits; 0 = always the likeliest token.")
      .at_least(0);

  t.bind("top-p",
         &RunConfig::generate,
         &GenerateConfig::top_p,
         "Keep the likeliest tokens up to this share of the probability; 1 = all.")
      .above(0)
      .at_most(1);
  t.bind("top-k",
         &RunConfig::generate,
         &GenerateConfig::top_k,
         "Keep this many of the likeliest tokens; 0 = all.")
      .at_least(0);

  t.section("data", "Tokenizer", command::kTokenize | command::kPrepare | command::kGenerate);
  t.row("tokenizer",
        SettingType::String,
        SettingStatus::Active,
        "File tokenizer.json of a hub model (byte-level BPE).")
      .default_note("bytes; lethe generate: that of the model's folder");
  t.rows().back().get = [](const RunConfig& c) -> std::optional<SettingValue> {
    return c.tokenizer;
  };
  t.rows().back().set = [](RunConfig& c, const SettingValue& value) {
    c.tokenizer = std::get<std::string>(value);
  };

  t.section("tokenize", "Listing", command::kTokenize);
  t.bind_enum("format",
              &RunConfig::tokenize,
              &TokenizeConfig::format,
              {"table", "ids", "json"},
              "One line per token, the ids in one line, or JSON.");

  add_prepare(t);

  t.section("runs", "Runs", command::kRuns);
  t.bind("compare",
         &RunConfig::runs,
         &RunsConfig::compare,
         "Two or more runs side by side: settings that differ, losses at common steps.");

  t.section("compare", "Comparison", command::kCompare);
  t.bind_enum("dtype",
              &RunConfig::compare,
              &CompareConfig::dtype,
              {"fp32", "fp64"},
              "Element type of the computation.");
  t.bind("json", &RunConfig::compare, &CompareConfig::json, "Rows as JSON, for programs.")
      .commands(command::kCompare | command::kRuns | command::kUnits);
  t.rows().back().set = [](RunConfig& c, const SettingValue& value) {
    c.compare.json = c.runs.json = c.units.json = std::get<bool>(value);
  };

  t.section("docs", "Reference pages", command::kDocs);
  t.bind("out", &RunConfig::docs, &DocsConfig::out, "Folder to write to.")
      .note("not empty")
      .refine(refuse_empty);
}

}  // namespace lethe::detail
