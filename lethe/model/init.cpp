#include "lethe/model/init.h"

#include <string_view>

#include "lethe/base/error.h"
#include "lethe/core/init.h"

namespace lethe {
namespace {

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> suffixes) {
  for (const std::string_view suffix : suffixes)
    if (name.ends_with(suffix)) return true;
  return false;
}

// Every row has k distinct experts as long as k <= E, which validation demands.
void fill_hash_table(const ModelConfig& config, const at::Tensor& table) {
  const at::Tensor flat = at::arange(table.numel(), at::TensorOptions().dtype(at::kLong));
  const at::Tensor token_times_k =
      flat.div(config.experts_per_token, "floor") * config.experts_per_token;
  table.copy_((token_times_k + flat.remainder(config.experts_per_token))
                  .remainder(config.num_experts)
                  .view(table.sizes()));
}

}  // namespace

void initialize(const ModelConfig& config, ParamStore& store, uint64_t seed) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < store.size(); ++i) {
    const std::string& name = store.row(i).name;
    const at::Tensor& value = store.value(i);
    if (name.ends_with(".tid2eid")) {
      fill_hash_table(config, value);
    } else if (ends_with_any(name, {"norm.weight"})) {
      value.fill_(1);
    } else if (ends_with_any(name,
                             {".attn_sink", ".ape", ".bias", "hc_head_base", ".expert_bias"})) {
      value.fill_(0);
    } else if (ends_with_any(name, {".alpha_pre", ".alpha_post", ".alpha_res", "hc_head_scale"})) {
      value.fill_(config.init_alpha);
    } else {
      normal_(value, config.init_range, seed, name);
    }
  }
}

}  // namespace lethe
