#include "lethe/data/dataset_card.h"

#include <nlohmann/json.hpp>

#include "lethe/base/error.h"
#include "lethe/io/atomic_file.h"
#include "lethe/io/file_facts.h"

namespace lethe {
namespace {

constexpr const char* kFormat = "lethe dataset";
constexpr int kVersion = 1;

}  // namespace

std::string DatasetCard::to_json() const {
  nlohmann::ordered_json json = {{"format", kFormat},
                                 {"version", kVersion},
                                 {"tokenizer", tokenizer},
                                 {"tokenizer_fingerprint", tokenizer_fingerprint},
                                 {"vocab_size", vocab_size},
                                 {"dtype", dtype},
                                 {"documents", documents},
                                 {"empty_documents", empty_documents},
                                 {"tokens", tokens},
                                 {"masked_tokens", masked_tokens},
                                 {"largest_id", largest_id},
                                 {"input_format", input_format},
                                 {"end_of_document", end_of_document}};
  auto list = nlohmann::ordered_json::array();
  for (const Source& source : sources)
    list.push_back({{"path", source.path}, {"bytes", source.bytes}, {"sha256", source.sha256}});
  json["sources"] = std::move(list);
  // A path may be no UTF-8: its bytes are then replaced, never an exception.
  return json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

DatasetCard DatasetCard::from_json(std::string_view text, const std::string& file) {
  try {
    const auto json = nlohmann::json::parse(text);
    LETHE_CHECK(DataError,
                json.at("format") == kFormat && json.at("version") == kVersion,
                "{}: must describe a dataset of version {}, got {} of version {}; prepare the data "
                "anew",
                file,
                kVersion,
                json.at("format").dump(),
                json.at("version").dump());
    DatasetCard card;
    json.at("tokenizer").get_to(card.tokenizer);
    json.at("tokenizer_fingerprint").get_to(card.tokenizer_fingerprint);
    json.at("vocab_size").get_to(card.vocab_size);
    json.at("dtype").get_to(card.dtype);
    json.at("documents").get_to(card.documents);
    json.at("empty_documents").get_to(card.empty_documents);
    json.at("tokens").get_to(card.tokens);
    json.at("masked_tokens").get_to(card.masked_tokens);
    json.at("largest_id").get_to(card.largest_id);
    json.at("input_format").get_to(card.input_format);
    json.at("end_of_document").get_to(card.end_of_document);
    for (const auto& source : json.at("sources"))
      card.sources.push_back({source.at("path").get<std::string>(),
                              source.at("bytes").get<int64_t>(),
                              source.at("sha256").get<std::string>()});
    return card;
  } catch (const nlohmann::json::exception& error) {
    fail<DataError>(
        "{}: must be the description of a dataset that `lethe data prepare` writes, got '{}'; "
        "prepare the data anew",
        file,
        error.what());
  }
}

std::optional<DatasetCard> read_card(const std::string& name) {
  const std::string file = name + ".json";
  if (!file_exists(file)) return std::nullopt;
  const std::string text = read_text_file(file);
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || json.value("format", nlohmann::json()) != kFormat) return std::nullopt;
  return DatasetCard::from_json(text, file);
}

}  // namespace lethe
