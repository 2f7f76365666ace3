// Rotary channels, bases and YaRN, in the spellings rope_scaling, rope_parameters (flat) and
// rope_parameters {main, compress} (model spec 1.1, 6-checkpoints 2.8).
#include <algorithm>
#include <cmath>

#include "lethe/base/error.h"
#include "lethe/config/hub_parts_impl.h"

namespace lethe {
namespace {

/// One statement of a value, and the key that makes it.
template <class T>
struct Stated {
  std::string key;
  T value;
};

template <class T>
void state(std::vector<Stated<T>>& all, std::string key, const std::optional<T>& value) {
  if (value) all.push_back({std::move(key), *value});
}

/// The common value of all statements; nullopt without any.
template <class T>
std::optional<T> agreed(JsonFields& fields, const std::vector<Stated<T>>& all) {
  if (all.empty()) return std::nullopt;
  for (const Stated<T>& other : all) {
    if (other.value == all[0].value) continue;
    fields.problem(
        other.key,
        fmt::format("must agree with '{}' = {}, got {}; both name the same thing, give one",
                    all[0].key,
                    all[0].value,
                    other.value));
  }
  return all[0].value;
}

struct Statements {
  std::vector<Stated<int64_t>> rope_dims;
  std::vector<Stated<double>> theta, compress_theta;
  std::optional<std::optional<YarnScaling>> yarn;  // unset: nothing said; set to nullopt: no YaRN
  std::string yarn_key;
};

/// rope dims from a fraction of head_dim, which must give a whole number of channels.
void state_factor(JsonFields& fields,
                  const std::string& key,
                  const ModelConfig& config,
                  Statements& said) {
  const auto factor = fields.real({"partial_rotary_factor"});
  if (!factor) return;
  const double dims = *factor * static_cast<double>(config.head_dim);
  const double whole = std::round(dims);
  if (dims > static_cast<double>(config.head_dim) || std::abs(dims - whole) > 1e-6) {
    fields.problem(
        "partial_rotary_factor",
        fmt::format(
            "must be qk_rope_head_dim / head_dim with head_dim = {}, got {}; correct one of them",
            config.head_dim,
            *factor));
    return;
  }
  said.rope_dims.push_back({key, static_cast<int64_t>(whole)});
}

/// "yarn" or "default"; nullopt after a problem.
std::optional<std::string> read_type(JsonFields& fields) {
  const auto type = fields.word({"type", "rope_type"});
  if (!type) {
    if (!fields.find("type") && !fields.find("rope_type"))
      fields.problem(
          "type",
          "is missing: it decides how positions are scaled ('yarn' in the releases); add it");
    return std::nullopt;
  }
  if (*type == "yarn" || *type == "default") return type;
  fields.problem(
      "type",
      fmt::format("must be 'yarn' (or 'default' for none), got '{}'; DeepSeek-V4 has no other",
                  *type));
  return std::nullopt;
}

YarnScaling read_yarn(JsonFields& fields, std::vector<std::string>& messages) {
  YarnScaling yarn;
  const auto factor = fields.real({"factor"});
  const auto positions = fields.count({"original_max_position_embeddings"});
  if (!factor && !fields.find("factor"))
    fields.problem("factor", "is missing: it decides the length extension; add it");
  if (!positions && !fields.find("original_max_position_embeddings")) {
    fields.problem("original_max_position_embeddings",
                   "is missing: it decides which channels YaRN scales; add it");
  }
  yarn.factor = factor.value_or(yarn.factor);
  yarn.original_max_positions = positions.value_or(yarn.original_max_positions);
  const auto fast = fields.real({"beta_fast"});
  const auto slow = fields.real({"beta_slow"});
  if (!fast)
    messages.push_back(
        fmt::format("YaRN without beta_fast: {} as in the releases", yarn.beta_fast));
  if (!slow)
    messages.push_back(
        fmt::format("YaRN without beta_slow: {} as in the releases", yarn.beta_slow));
  yarn.beta_fast = fast.value_or(yarn.beta_fast);
  yarn.beta_slow = slow.value_or(yarn.beta_slow);
  fields.fixed(
      "attention_factor", 1.0, "DeepSeek-V4 scales neither rotation nor softmax (model spec 4.1)");
  fields.fixed("truncate", true, "the ramp of DeepSeek-V4 has whole channels at its ends");
  return yarn;
}

void state_yarn(JsonFields& owner,
                const std::string& key,
                std::optional<YarnScaling> yarn,
                Statements& said) {
  if (said.yarn && *said.yarn != yarn) {
    owner.problem(
        key,
        fmt::format("must agree with '{}', got other values; give one of the two", said.yarn_key));
  }
  said.yarn = yarn;
  said.yarn_key = key;
}

void refuse_unknown(JsonFields& fields) {
  for (const std::string& key : fields.unknown_keys()) {
    fields.problem(key,
                   "is not a key of DeepSeek-V4's rotary scaling, and could change the "
                   "mathematics; remove it");
  }
}

/// rope_scaling, flat rope_parameters, or rope_parameters.compress.
void read_scaling(JsonFields& top,
                  JsonFields fields,
                  const std::string& key,
                  const ModelConfig& config,
                  Statements& said,
                  std::vector<std::string>& messages) {
  const bool compress = key == "rope_parameters.compress";
  state(compress ? said.compress_theta : said.theta,
        key + ".rope_theta",
        fields.real({"rope_theta"}));
  state_factor(fields, key + ".partial_rotary_factor", config, said);
  const auto type = read_type(fields);
  if (type) {
    std::optional<YarnScaling> yarn;
    if (*type == "yarn") yarn = read_yarn(fields, messages);
    state_yarn(top, key, yarn, said);
    refuse_unknown(fields);
  }
}

void read_rope_parameters(JsonFields& top,
                          const ModelConfig& config,
                          Statements& said,
                          std::vector<std::string>& messages) {
  auto nested = top.object("rope_parameters");
  if (!nested) return;
  if (!nested->has("main") && !nested->has("compress")) {
    read_scaling(top, *nested, "rope_parameters", config, said, messages);
    return;
  }
  if (auto main = nested->object("main")) {
    state(said.theta, "rope_parameters.main.rope_theta", main->real({"rope_theta"}));
    state_factor(*main, "rope_parameters.main.partial_rotary_factor", config, said);
    main->fixed("type", "default", "layers of ratio 0 have no YaRN (model spec 4.1)");
    main->fixed("rope_type", "default", "layers of ratio 0 have no YaRN (model spec 4.1)");
    refuse_unknown(*main);
  }
  if (auto compress = nested->object("compress")) {
    read_scaling(top, *compress, "rope_parameters.compress", config, said, messages);
  }
  refuse_unknown(*nested);
}

void require_compressed(JsonFields& fields, const ModelConfig& config, bool theta, bool yarn) {
  const bool any =
      std::any_of(config.ratios.begin(), config.ratios.end(), [](int64_t r) { return r > 0; });
  if (!any) return;
  if (!theta && !fields.find("compress_rope_theta")) {
    fields.problem("compress_rope_theta",
                   "is missing: it decides the rotary base of the layers with ratio > 0 "
                   "(160000 in the releases); add it");
  }
  if (!yarn && !fields.has("rope_scaling") && !fields.has("rope_parameters")) {
    fields.problem(
        "rope_scaling",
        "is missing: it decides YaRN in the layers with ratio > 0; add it, or null for none");
  }
}

}  // namespace

void read_rope(JsonFields& fields, ModelConfig& config, std::vector<std::string>& messages) {
  Statements said;
  state(said.rope_dims, "qk_rope_head_dim", fields.count({"qk_rope_head_dim", "rope_head_dim"}));
  state_factor(fields, "partial_rotary_factor", config, said);
  state(said.theta, "rope_theta", fields.real({"rope_theta"}));
  state(said.compress_theta, "compress_rope_theta", fields.real({"compress_rope_theta"}));
  if (auto scaling = fields.object("rope_scaling")) {
    read_scaling(fields, *scaling, "rope_scaling", config, said, messages);
  } else if (fields.has("rope_scaling")) {
    messages.emplace_back("rope_scaling is null: no YaRN");
  }
  read_rope_parameters(fields, config, said, messages);

  const auto dims = agreed(fields, said.rope_dims);
  const auto theta = agreed(fields, said.theta);
  const auto compress = agreed(fields, said.compress_theta);
  if (!dims && !fields.find("qk_rope_head_dim") && !fields.find("partial_rotary_factor")) {
    fields.problem("qk_rope_head_dim",
                   "(or partial_rotary_factor) is missing: it decides how many channels of a head "
                   "are rotated; add it");
  }
  if (!theta && !fields.find("rope_theta")) {
    fields.problem("rope_theta",
                   "is missing: it decides the rotary base of the layers with ratio 0; add it");
  }
  require_compressed(fields, config, compress.has_value(), said.yarn.has_value());
  config.rope_dims = dims.value_or(config.rope_dims);
  config.rope_theta = theta.value_or(config.rope_theta);
  config.compress_rope_theta = compress.value_or(config.compress_rope_theta);
  config.yarn = said.yarn.value_or(std::nullopt);
}

}  // namespace lethe
