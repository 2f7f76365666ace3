// Which layer compresses by how much and which routes by hash, in both spellings (model spec 1.2).
#include <algorithm>

#include "lethe/base/error.h"
#include "lethe/config/hub_parts_impl.h"

namespace lethe {
namespace {

std::optional<std::vector<int64_t>> from_compress_ratios(JsonFields& fields,
                                                         const ModelConfig& config,
                                                         std::vector<std::string>& messages) {
  auto list = fields.counts("compress_ratios");
  if (!list) return std::nullopt;
  const auto layers = static_cast<size_t>(config.num_layers);
  const size_t all = layers + static_cast<size_t>(config.num_mtp);
  const bool draft_tail = list->size() == all + 2 && (*list)[all] == 0 && (*list)[all + 1] == 0;
  if (list->size() != layers && list->size() != all && !draft_tail) {
    fields.problem("compress_ratios",
                   fmt::format("must have num_hidden_layers + num_nextn_predict_layers = {} "
                               "entries (or {}; or {} with "
                               "two trailing zeros), got {}; correct the list or the layer counts",
                               all,
                               layers,
                               all + 2,
                               list->size()));
    return std::nullopt;
  }
  if (list->size() == layers && all > layers) {
    messages.push_back(fmt::format(
        "compress_ratios has no entries for the {} MTP blocks: read as 0", all - layers));
  }
  if (draft_tail)
    messages.emplace_back(
        "compress_ratios: the two zeros of a draft model at its end are not used");
  list->resize(all, 0);
  const auto ones = std::count(list->begin(), list->end(), 1);
  if (ones > 0)
    messages.push_back(
        fmt::format("compress_ratios: {} entries of 1 mean no compression: read as 0", ones));
  std::replace(list->begin(), list->end(), int64_t{1}, int64_t{0});
  return list;
}

struct Rates {
  std::optional<int64_t> csa, hca;
};

Rates read_rates(JsonFields& fields) {
  Rates rates{.csa = fields.count({"compress_rate_csa"}),
              .hca = fields.count({"compress_rate_hca"})};
  if (auto nested = fields.object("compress_rates")) {
    const auto csa = nested->count({kCsaName, "csa"});
    const auto hca = nested->count({kHcaName, "hca"});
    if (csa && rates.csa && *csa != *rates.csa) {
      fields.problem(
          "compress_rate_csa",
          fmt::format("must agree with compress_rates = {}, got {}; give one", *csa, *rates.csa));
    }
    if (hca && rates.hca && *hca != *rates.hca) {
      fields.problem(
          "compress_rate_hca",
          fmt::format("must agree with compress_rates = {}, got {}; give one", *hca, *rates.hca));
    }
    rates = {.csa = csa ? csa : rates.csa, .hca = hca ? hca : rates.hca};
    for (const std::string& key : nested->unknown_keys()) {
      nested->problem(
          key, fmt::format("is no attention kind; the kinds are {} and {}", kCsaName, kHcaName));
    }
  }
  if (rates.csa && *rates.csa != kCsaRatio) {
    fields.problem(
        "compress_rates",
        fmt::format("must give {} for {}, got {}; overlapping slots and the indexer exist "
                    "for that ratio only",
                    kCsaRatio,
                    kCsaName,
                    *rates.csa));
  }
  if (rates.hca && *rates.hca < 2) {
    fields.problem(
        "compress_rates",
        fmt::format("must give at least 2 for {}, got {}; use {} for layers without slots",
                    kHcaName,
                    *rates.hca,
                    kSlidingName));
    rates.hca.reset();
  }
  return rates;
}

/// Ratio of one layer_types entry; nullopt after a problem.
std::optional<int64_t> ratio_of(JsonFields& fields, const std::string& kind, const Rates& rates) {
  if (kind == kSlidingName) return 0;
  if (kind == kCsaName) return kCsaRatio;
  if (kind != kHcaName) {
    fields.problem("layer_types",
                   fmt::format("must hold {}, {} or {}, got '{}'; correct the entry",
                               kSlidingName,
                               kCsaName,
                               kHcaName,
                               kind));
  } else if (!rates.hca) {
    fields.problem("compress_rates",
                   fmt::format("is missing or lacks {}: it decides the tokens per slot of those "
                               "layers (128 in the releases); add it",
                               kHcaName));
  } else {
    return rates.hca;
  }
  return std::nullopt;
}

std::optional<std::vector<int64_t>> from_layer_types(JsonFields& fields,
                                                     const ModelConfig& config,
                                                     const std::vector<int64_t>* given) {
  const Rates rates = read_rates(fields);
  const auto kinds = fields.words("layer_types");
  if (!kinds) return std::nullopt;
  const auto layers = static_cast<size_t>(config.num_layers);
  const size_t all = layers + static_cast<size_t>(config.num_mtp);
  if (kinds->size() != layers && kinds->size() != all) {
    fields.problem("layer_types",
                   fmt::format("must have num_hidden_layers = {} entries, got {}; correct the list",
                               layers,
                               kinds->size()));
    return std::nullopt;
  }
  std::vector<int64_t> ratios;
  for (size_t i = 0; i < kinds->size(); ++i) {
    Rates known = rates;
    // Beside compress_ratios, compress_rates may be absent: the kind alone is compared then.
    const bool compressed = given && (*given)[i] > 0 && (*given)[i] != kCsaRatio;
    if (!known.hca && compressed) known.hca = (*given)[i];
    if (!known.hca && given) known.hca = kReleaseHcaRatio;
    const auto ratio = ratio_of(fields, (*kinds)[i], known);
    if (!ratio) return std::nullopt;
    ratios.push_back(*ratio);
  }
  ratios.resize(all, 0);
  return ratios;
}

}  // namespace

void read_ratios(JsonFields& fields, ModelConfig& config, std::vector<std::string>& messages) {
  const bool any = fields.find("compress_ratios") || fields.find("layer_types");
  const auto ratios = from_compress_ratios(fields, config, messages);
  const auto kinds = from_layer_types(fields, config, ratios ? &*ratios : nullptr);
  if (!any) {
    fields.problem("compress_ratios",
                   "(or layer_types with compress_rates) is missing: it decides which layers "
                   "compress their keys and by how much; add it");
  }
  if (ratios && kinds && *ratios != *kinds) {
    const auto at =
        std::mismatch(ratios->begin(), ratios->end(), kinds->begin()).first - ratios->begin();
    fields.problem(
        "layer_types",
        fmt::format("must agree with compress_ratios, got ratio {} against {} in layer {}; "
                    "give one of the two",
                    (*kinds)[static_cast<size_t>(at)],
                    (*ratios)[static_cast<size_t>(at)],
                    at));
  }
  if (ratios || kinds) config.ratios = ratios ? *ratios : *kinds;
}

void read_hash_layers(JsonFields& fields, ModelConfig& config) {
  const auto number = fields.count({"num_hash_layers", "n_hash_layers"});
  const auto kinds = fields.words("mlp_layer_types");
  if (number) config.num_hash_layers = *number;
  if (!kinds) {
    if (!fields.find("num_hash_layers") && !fields.find("n_hash_layers") &&
        !fields.find("mlp_layer_types")) {
      fields.problem(
          "num_hash_layers",
          "(or mlp_layer_types) is missing: it decides which layers route by token id; add it");
    }
    return;
  }
  const auto hash_end =
      std::find_if(kinds->begin(), kinds->end(), [](const auto& k) { return k != "hash_moe"; });
  const auto hashes = hash_end - kinds->begin();
  const auto scored = std::count(hash_end, kinds->end(), "moe");
  if (kinds->size() != static_cast<size_t>(config.num_layers) ||
      hashes + scored != static_cast<int64_t>(kinds->size())) {
    fields.problem("mlp_layer_types",
                   fmt::format("must be num_hidden_layers = {} entries, 'hash_moe' first and then "
                               "'moe', got {}; correct the list",
                               config.num_layers,
                               Json(*kinds).dump()));
  } else if (number && *number != hashes) {
    fields.problem("mlp_layer_types",
                   fmt::format("must agree with num_hash_layers = {}, got {} hash_moe; give one of "
                               "the two",
                               *number,
                               hashes));
  } else {
    config.num_hash_layers = hashes;
  }
}

}  // namespace lethe
