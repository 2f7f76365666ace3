#include "support/tiny_model.h"

#include <torch/csrc/autograd/autograd.h>

#include "lethe/base/random.h"
#include "lethe/core/init.h"
#include "lethe/model/init.h"

namespace lethe::test {

std::unique_ptr<DeepseekV4> lively_model(const ModelConfig& config,
                                         ParamPlacement placement,
                                         uint64_t seed) {
  const at::NoGradGuard no_grad;
  auto model = std::make_unique<DeepseekV4>(config, placement);
  ParamStore& params = model->params();
  initialize(config, params, seed);
  for (size_t i = 0; i < params.size(); ++i) {
    if (params.row(i).is_integer) continue;
    const at::Tensor& value = params.value(i);
    const at::Tensor noise = at::empty_like(value);
    const double scale =
        value.dim() >= 2 ? 1.0 / std::sqrt(static_cast<double>(value.size(-1))) : 0.2;
    normal_(noise, scale, seed + 1, params.row(i).name);
    const bool unit = params.row(i).name.ends_with("norm.weight") ||
                      params.row(i).name.find("alpha") != std::string::npos ||
                      params.row(i).name.ends_with("hc_head_scale");
    value.copy_(unit ? noise + 1 : noise);
  }
  return model;
}

MicroBatch batch_of(const ModelConfig& config,
                    const std::vector<int64_t>& ids,
                    const std::vector<int64_t>& lengths) {
  const Documents documents = Documents::from_lengths(lengths);
  std::vector<int64_t> labels(ids.size(), kIgnoredLabel);
  for (int64_t d = 0; d < documents.count(); ++d)
    for (int64_t t = documents.begin(d); t + 1 < documents.end(d); ++t)
      labels[static_cast<size_t>(t)] = ids[static_cast<size_t>(t) + 1];
  return make_micro_batch(ids, labels, documents.cu_seqlens(), config.ratios);
}

MicroBatch random_batch(const ModelConfig& config,
                        const std::vector<int64_t>& lengths,
                        uint64_t seed) {
  Random random(seed);
  int64_t tokens = 0;
  for (const int64_t n : lengths) tokens += n;
  std::vector<int64_t> ids;
  for (int64_t t = 0; t < tokens; ++t)
    ids.push_back(
        static_cast<int64_t>(random.uniform_below(static_cast<uint64_t>(config.vocab_size))));
  return batch_of(config, ids, lengths);
}

LossFactors all_losses(const ModelConfig& config) {
  return {.main = 1,
          .mtp = std::vector<double>(static_cast<size_t>(config.num_mtp), 0.3),
          .indexer = 1,
          .balance = 0,
          .indexer_loss = IndexerLoss::Sparse};
}

std::vector<at::Tensor> gradients(DeepseekV4& model,
                                  const MicroBatch& batch,
                                  const LossFactors& factors) {
  RunTally tally = model.make_tally();
  const ModelOutput out = model.forward(batch, factors, tally);
  std::vector<at::Tensor> leaves;
  for (size_t i = 0; i < model.params().size(); ++i)
    if (model.params().value(i).requires_grad()) leaves.push_back(model.params().value(i));
  return torch::autograd::grad({out.total}, leaves, {}, std::nullopt, false, /*allow_unused=*/true);
}

}  // namespace lethe::test
