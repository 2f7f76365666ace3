#include "lethe/train/failure_dump.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include <ATen/ops/isfinite.h>
#include <ATen/ops/tensor.h>

#include "lethe/checkpoint/tensor_file.h"
#include "lethe/io/atomic_file.h"

namespace lethe {
namespace {

using Json = nlohmann::ordered_json;

Json statistics(const at::Tensor& value) {
  const at::Tensor wide = value.detach().to(at::kDouble);
  const at::Tensor finite = at::isfinite(wide);
  const at::Tensor kept = wide.masked_fill(finite.logical_not(), 0.0);
  const auto num_finite = finite.sum().item<int64_t>();
  const double squares = kept.square().sum().item<double>();
  return {{"rms", num_finite > 0 ? std::sqrt(squares / static_cast<double>(num_finite)) : 0.0},
          {"max_abs", value.numel() > 0 ? kept.abs().max().item<double>() : 0.0},
          {"not_finite", value.numel() - num_finite}};
}

Json line_of(const std::string& name, const at::Tensor& value) {
  Json line{{"name", name}};
  line.update(statistics(value));
  return line;
}

void write_batches(const std::filesystem::path& path, std::span<const Batch> micro_batches) {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (size_t m = 0; m < micro_batches.size(); ++m) {
    const std::string prefix = std::to_string(m) + ".";
    tensors.emplace_back(prefix + "ids", at::tensor(micro_batches[m].ids));
    tensors.emplace_back(prefix + "labels", at::tensor(micro_batches[m].labels));
    tensors.emplace_back(prefix + "cu_seqlens", at::tensor(micro_batches[m].cu_seqlens));
  }
  write_tensor_file(path.string(), tensors);
}

std::string parameter_lines(const ParamStore& params) {
  std::string text;
  for (size_t i = 0; i < params.size(); ++i) {
    Json line = line_of(params.row(i).name, params.value(i));
    if (params.value(i).grad().defined()) line["grad"] = statistics(params.value(i).grad());
    text += line.dump() + "\n";
  }
  return text;
}

std::string activation_lines(std::span<const Batch> micro_batches,
                             const DeepseekV4& model,
                             const LossFactors& factors) {
  const at::NoGradGuard no_grad;
  std::string text;
  for (size_t m = 0; m < micro_batches.size(); ++m) {
    const Batch& batch = micro_batches[m];
    const MicroBatch micro =
        make_micro_batch(batch.ids, batch.labels, batch.cu_seqlens, model.config().ratios);
    RunTally tally = model.make_tally();
    const Observer look = [&](const std::string& name, const at::Tensor& value) {
      if (!value.defined() || !value.is_floating_point()) return;
      Json line{{"micro_batch", m}};
      line.update(line_of(name, value));
      text += line.dump() + "\n";
    };
    (void)model.forward(micro, factors, tally, look);
  }
  return text;
}

}  // namespace

void write_failure_dump(const std::filesystem::path& folder,
                        const std::string& error,
                        std::span<const Batch> micro_batches,
                        const DeepseekV4& model,
                        const LossFactors& factors) {
  ensure_writable_folder(folder);
  write_file_atomically(folder / "error.txt", error + "\n");
  write_batches(folder / "batch.safetensors", micro_batches);
  write_file_atomically(folder / "parameters.jsonl", parameter_lines(model.params()));
  write_file_atomically(folder / "activations.jsonl",
                        activation_lines(micro_batches, model, factors));
}

}  // namespace lethe
