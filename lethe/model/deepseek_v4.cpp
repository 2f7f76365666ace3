#include "lethe/model/deepseek_v4.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "lethe/core/byte_accounting.h"
#include "lethe/core/live_blocks.h"
#include "lethe/core/node.h"
#include "lethe/model/param_rows.h"
#include "lethe/ops/cross_entropy.h"
#include "lethe/ops/embedding.h"
#include "lethe/ops/linear.h"
#include "lethe/ops/rms_norm.h"

namespace lethe {
namespace {

// Tokens whose logits exist at a time: enough for products at full speed (256 rows cost a sixth of
// it), and at most 16 MiB of float32, so that the logits of a whole large batch never do.
int64_t logit_chunk(int64_t vocab_size) {
  constexpr int64_t kMostTokens = 1024, kMostBytes = 16 << 20;
  return std::clamp<int64_t>(kMostBytes / (4 * vocab_size), 1, kMostTokens);
}

at::Device device_of(ParamPlacement::Device device) {
  return device == ParamPlacement::Device::Cuda   ? at::Device(at::kCUDA)
         : device == ParamPlacement::Device::Meta ? at::Device(at::kMeta)
                                                  : at::Device(at::kCPU);
}

// The tables stay as long as the parameters do, and count as such.
RopeTables make_rope_tables(const ModelConfig& config, at::Device device) {
  const ByteTag tag(ByteCategory::Parameters);
  return RopeTables(config, device);
}

}  // namespace

bool is_indexer_param(const ParamRow& row) {
  return row.name.find(".indexer.") != std::string::npos;
}

DeepseekV4::DeepseekV4(const ModelConfig& config, ParamPlacement placement)
    : config_(config),
      store_(std::make_unique<ParamStore>(param_rows(config), placement)),
      rope_(make_rope_tables(config, device_of(placement.device))) {
  const ParamScope root = store_->root(), decoder = root.sub("decoder"),
                   layers = decoder.sub("layers");
  embed_ = root.add("embedding.word_embeddings.weight", {config.vocab_size, config.hidden});
  for (int64_t i = 0; i < config.num_layers; ++i)
    layers_.push_back(std::make_unique<Layer>(layers.sub(std::to_string(i)),
                                              config,
                                              config.ratio(i),
                                              config.is_hash_layer(i),
                                              rope_.of(config.ratio(i))));
  stream_head_ = std::make_unique<StreamHead>(decoder, config);
  final_norm_ = decoder.add("final_layernorm.weight", {config.hidden});
  lm_head_ = root.add("output_layer.weight", {config.vocab_size, config.hidden});
  for (int64_t k = 0; k < config.num_mtp; ++k)
    mtp_.push_back(std::make_unique<MtpBlock>(
        root.sub("mtp").sub("layers").sub(std::to_string(k)), config, rope_.main));
  store_->expect_all_claimed();
}

DeepseekV4::~DeepseekV4() = default;

RunTally DeepseekV4::make_tally() const {
  const auto layers = static_cast<size_t>(config_.num_layers + config_.num_mtp);
  return {.indexer_kl = std::vector<double>(layers),
          .expert_counts = std::vector<at::Tensor>(layers)};
}

std::vector<at::Tensor> DeepseekV4::router_biases() const {
  std::vector<at::Tensor> out;
  for (int64_t i = 0; i < config_.num_layers + config_.num_mtp; ++i) {
    const int64_t depth = i - config_.num_layers;
    const std::string name =
        depth < 0 ? fmt::format("decoder.layers.{}.mlp.router.expert_bias", i)
                  : fmt::format("mtp.layers.{}.mtp_model_layer.mlp.router.expert_bias", depth);
    out.push_back(store_->has(name) ? store_->value(name) : at::Tensor());
  }
  return out;
}

const std::vector<Node>& DeepseekV4::program(int64_t layer) const {
  return layers_[static_cast<size_t>(layer)]->program();
}

LayerTape DeepseekV4::layer_tape(const RecomputePass& recompute,
                                 const MicroBatch& batch,
                                 int64_t layer) const {
  const int64_t depth = layer - config_.num_layers;
  const std::string label = depth < 0 ? fmt::format("L{}", layer) : fmt::format("MTP{}", depth);
  if (!recompute.recomputes() && !recompute.swaps()) return LayerTape(label);
  if (!recompute.recomputes())
    return {recompute, {.index = static_cast<size_t>(layer), .label = label}};
  Tensors constants{batch.ids, batch.positions, batch.cu_seqlens, rope_.main, rope_.compress};
  for (const auto& [ratio, positions] : batch.slot_positions) constants.push_back(positions);
  // A checked plan refuses what a region reads and has not been told of: frozen parameters, and
  // parameters through a detached tensor.
  if (recompute.plan->checks != PlanChecks::Off)
    for (size_t i = 0; i < store_->size(); ++i) constants.push_back(store_->value(i));
  return {recompute,
          {.index = static_cast<size_t>(layer),
           .label = label,
           .constants = std::move(constants),
           .save_targets = &deepseek_v4_save_targets()}};
}

// Embedding and all main layers; leaves the streams in the state, sums the balance losses.
at::Tensor DeepseekV4::run_trunk(LayerState& state,
                                 const at::Tensor& embed_weight,
                                 const RecomputePass& recompute) const {
  ProducerTag producer({}, node_name(Event::EmbedEnd));
  const at::Tensor embedded = ops::embedding(state.batch().ids, embed_weight);
  state.prefix.clear();
  state.observe("embeddings", embedded);
  state.streams = embedded.unsqueeze(1).expand({-1, config_.streams, -1});
  at::Tensor balance;
  producer.set_node(node_name(Event::HeadLossEnd));  // sums of losses
  for (size_t i = 0; i < layers_.size(); ++i) {
    state.layer = static_cast<int64_t>(i);
    state.prefix = fmt::format("layers.{}.", i);
    state.tape = layer_tape(recompute, state.batch(), state.layer);
    layers_[i]->forward(state);
    if (state.balance.defined())
      balance = balance.defined() ? balance + state.balance : state.balance;
    drop(state.balance);
  }
  state.prefix.clear();
  return balance;
}

ModelOutput DeepseekV4::forward(const MicroBatch& batch,
                                const LossFactors& factors,
                                RunTally& tally,
                                const Observer& observer,
                                const RecomputePass& recompute) const {
  std::optional<TapeScope> scope;
  if (recompute.recomputes()) scope.emplace(*recompute.tape);
  LayerState state{
      .pass = std::make_shared<const ForwardPass>(ForwardPass{batch, factors, observer, tally})};
  const auto depths = static_cast<int64_t>(mtp_.size());
  // Shared weights: gradients are added main first, then depth by depth.
  const Tensors embeds = fork(embed_, 1 + depths), heads = fork(lm_head_, 1 + depths);
  ModelOutput out;
  out.balance = run_trunk(state, embeds[0], recompute);
  state.observe("streams", state.streams);
  at::Tensor to_head = state.streams;
  if (depths > 0) {
    auto [head, next] = forked<2>(state.streams);
    to_head = head;
    state.streams = next;
  }
  ProducerTag producer({}, node_name(Event::FinalNormEnd));
  const at::Tensor hidden =
      ops::rms_norm(stream_head_->forward(to_head), final_norm_, config_.norm_eps);
  state.observe("final_hidden", hidden);
  producer.set_node(node_name(Event::HeadLossEnd));
  const auto [main_sum, token_loss] =
      ops::cross_entropy(hidden, heads[0], batch.labels, logit_chunk(config_.vocab_size));
  state.observe("token_loss", token_loss);
  out.total = main_sum * factors.main;
  out.main_sum = main_sum.detach();
  at::Tensor labels = batch.labels;
  for (int64_t k = 0; k < depths; ++k) {
    const auto depth = static_cast<size_t>(k);
    state.layer = config_.num_layers + k;
    state.prefix = fmt::format("mtp.{}.", k);
    state.tape = layer_tape(recompute, batch, state.layer);
    ProducerTag mtp_producer(state.tape.label(), node_name(Event::MtpEntryEnd));
    const at::Tensor ahead = shift_left(batch.ids, batch.documents, k + 1, 0);
    labels = shift_left(labels, batch.documents, 1, kIgnoredLabel);
    const at::Tensor mtp_hidden = mtp_[depth]->forward(
        state, ops::embedding(ahead, embeds[depth + 1]), /*streams_read_again=*/k + 1 < depths);
    mtp_producer.set_node(node_name(Event::MtpHeadLossEnd));
    const auto [sum, token] =
        ops::cross_entropy(mtp_hidden, heads[depth + 1], labels, logit_chunk(config_.vocab_size));
    state.observe("token_loss", token);
    out.total = out.total + sum * factors.mtp.at(depth);
    out.mtp_sums.push_back(sum.detach());
    if (state.balance.defined())
      out.balance = out.balance.defined() ? out.balance + state.balance : state.balance;
    drop(state.balance);
  }
  if (out.balance.defined()) {
    out.total = out.total + out.balance;
    out.balance = out.balance.detach();
  }
  return out;
}

at::Tensor DeepseekV4::hidden(const MicroBatch& batch) const {
  const LossFactors factors;
  const Observer nobody;
  RunTally tally = make_tally();
  LayerState state{
      .pass = std::make_shared<const ForwardPass>(ForwardPass{batch, factors, nobody, tally})};
  run_trunk(state, embed_, {});
  return ops::rms_norm(stream_head_->forward(state.streams), final_norm_, config_.norm_eps);
}

at::Tensor DeepseekV4::main_loss_sum(const MicroBatch& batch) const {
  return std::get<0>(
      ops::cross_entropy(hidden(batch), lm_head_, batch.labels, logit_chunk(config_.vocab_size)));
}

at::Tensor DeepseekV4::logits(const at::Tensor& hidden_ND) const {
  return ops::linear(hidden_ND, lm_head_);
}

}  // namespace lethe
