#include "lethe/train/compare.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/ranges.h>

#include <torch/csrc/autograd/autograd.h>

#include "lethe/base/error.h"
#include "lethe/checkpoint/hub_weights.h"
#include "lethe/config/contract.h"
#include "lethe/model/deepseek_v4.h"
#include "lethe/train/golden_folder.h"
#include "lethe/train/model_folder.h"

namespace lethe {
namespace {

namespace fs = std::filesystem;

// The shares of the criterion for what only norms and sums are known of (golden README: gradients).
constexpr double kNormShare = 1e-4;

std::string weights_file(const fs::path& folder) {
  for (const char* name : {"weights.safetensors", "model.safetensors"})
    if (fs::exists(folder / name)) return name;
  fail<DataError>(
      "compare: '{}' must hold weights.safetensors or model.safetensors, got neither; see "
      "tools/make_golden.py",
      folder.string());
}

// Everything one forward and backward of a chosen loss leaves.
struct Run {
  std::map<std::string, at::Tensor> seen;   // observed tensors by name, with their graph
  std::map<std::string, at::Tensor> grads;  // by hub name, plus "embeddings" and "streams"
  double main_sum = 0;
  std::vector<double> mtp_sums;
};

class Comparison {
 public:
  Comparison(const fs::path& folder, CompareDtype dtype)
      : golden_(read_golden_folder(folder)),
        model_(read_model_folder(
            folder,
            weights_file(folder),
            {.float_type = dtype == CompareDtype::Fp64 ? ParamPlacement::Float::Fp64
                                                       : ParamPlacement::Float::Fp32})),
        batch_(make_micro_batch(
            {golden_.ids.const_data_ptr<int64_t>(), static_cast<size_t>(golden_.ids.numel())},
            {golden_.labels.const_data_ptr<int64_t>(), static_cast<size_t>(golden_.labels.numel())},
            golden_.cu_seqlens(),
            model_->config().ratios)),
        params_(contract(model_->config())),
        hub_(disk_tensors(params_, Dialect::Hub)) {
    model_->params().set_trained([](const ParamRow& row) { return !is_indexer_param(row); });
    counted_ = golden_.labels.ne(kIgnoredLabel).sum().item<double>();
    counted_mtp_ = shift_left(batch_.labels, batch_.documents, 1, kIgnoredLabel)
                       .ne(kIgnoredLabel)
                       .sum()
                       .item<double>();
  }

  std::vector<CompareRow> rows() {
    compare_trunk();
    if (model_->config().num_mtp > 0 && !golden_.mtp.empty()) compare_mtp();
    if (!golden_.grad_norms_total.empty()) compare_totals();
    list_absent();
    sort_worst_first(rows_);
    return std::move(rows_);
  }

 private:
  Run run(double main_weight, double mtp_weight);
  void compare_trunk();
  void compare_mtp();
  void compare_totals();
  void compare_norm(const std::string& name,
                    std::pair<double, double> expected,
                    const at::Tensor& got);
  void list_absent();
  void compare_map(const GoldenFolder::TensorMap& expected,
                   const std::string& part,
                   const std::string& prefix,
                   TensorClass kind,
                   const std::map<std::string, at::Tensor>& got);
  [[nodiscard]] at::Tensor adapted(const std::string& name,
                                   const at::Tensor& got,
                                   const at::Tensor& expected) const;
  [[nodiscard]] at::Tensor local_slots(const at::Tensor& topk, int64_t width) const;

  GoldenFolder golden_;
  std::unique_ptr<DeepseekV4> model_;
  MicroBatch batch_;
  std::vector<ParamSpec> params_;
  std::vector<DiskTensor> hub_;
  double counted_ = 0, counted_mtp_ = 0;
  std::vector<CompareRow> rows_;
};

Run Comparison::run(double main_weight, double mtp_weight) {
  const auto share = [](double weight, double count) { return count > 0 ? weight / count : 0.0; };
  LossFactors factors{.main = share(main_weight, counted_)};
  const auto depths = static_cast<size_t>(model_->config().num_mtp);
  factors.mtp.assign(depths, depths > 0 ? share(mtp_weight, counted_mtp_) : 0.0);
  Run result;
  RunTally tally = model_->make_tally();
  const Observer keep = [&](const std::string& name, const at::Tensor& value) {
    result.seen[name] = value;
  };
  const ModelOutput out = model_->forward(batch_, factors, tally, keep);
  result.main_sum = out.main_sum.item<double>();
  for (const at::Tensor& sum : out.mtp_sums) result.mtp_sums.push_back(sum.item<double>());

  std::vector<at::Tensor> leaves;
  std::vector<std::optional<size_t>> leaf_of(params_.size());
  for (size_t i = 0; i < params_.size(); ++i) {
    if (!model_->params().value(i).requires_grad()) continue;
    leaf_of[i] = leaves.size();
    leaves.push_back(model_->params().value(i));
  }
  for (const char* name : {"embeddings", "streams"}) leaves.push_back(result.seen.at(name));
  const auto grads =
      torch::autograd::grad({out.total}, leaves, {}, std::nullopt, false, /*allow_unused=*/true);
  for (const DiskTensor& t : hub_) {
    const at::Tensor grad = assemble_hub_tensor(
        t, [&](size_t i) { return leaf_of[i] ? grads[*leaf_of[i]] : at::Tensor(); });
    if (grad.defined()) result.grads[t.name] = grad;
  }
  result.grads["embeddings"] = grads[leaves.size() - 2];
  result.grads["streams"] = grads[leaves.size() - 1];
  return result;
}

// Slot numbers local to the document, padded with -1 to the directory's width.
at::Tensor Comparison::local_slots(const at::Tensor& topk, int64_t width) const {
  const auto cu = batch_.documents.cu_slots(kCsaRatio);
  at::Tensor out = at::full({topk.size(0), width}, -1, topk.options());
  for (int64_t d = 0; d < batch_.documents.count(); ++d) {
    const int64_t begin = batch_.documents.begin(d), length = batch_.documents.length(d);
    const at::Tensor rows = topk.narrow(0, begin, length);
    const int64_t columns = std::min(width, topk.size(1));
    out.narrow(0, begin, length)
        .narrow(1, 0, columns)
        .copy_(
            at::where(rows.lt(0), rows, rows - cu[static_cast<size_t>(d)]).narrow(1, 0, columns));
  }
  return out;
}

at::Tensor Comparison::adapted(const std::string& name,
                               const at::Tensor& got,
                               const at::Tensor& expected) const {
  if (name.ends_with("indexer.topk")) return local_slots(got, expected.size(-1));
  return got;
}

void Comparison::compare_map(const GoldenFolder::TensorMap& expected,
                             const std::string& part,
                             const std::string& prefix,
                             TensorClass kind,
                             const std::map<std::string, at::Tensor>& got) {
  for (const auto& [name, value] : expected) {
    const auto found = got.find(name);
    if (found == got.end() || !found->second.defined()) {
      CompareRow row =
          not_compared(prefix + name, "expected, but this model produces no such tensor");
      row.verdict = CompareRow::Verdict::Miss;
      rows_.push_back(row);
      continue;
    }
    rows_.push_back(compare_tensor(prefix + name,
                                   adapted(name, found->second, value),
                                   value,
                                   kind,
                                   golden_.tolerance(part, name)));
  }
  for (const auto& [name, value] : got)
    if (!expected.contains(name) && value.defined() && !expected.empty())
      rows_.push_back(not_compared(prefix + name, "not in the directory"));
}

void Comparison::compare_trunk() {
  Run trunk = run(1, 0);
  std::map<std::string, at::Tensor> seen;
  for (const auto& [name, value] : trunk.seen)
    if (!name.starts_with("mtp.") && name != "streams") seen[name] = value;
  const auto options = trunk.seen.at("final_hidden").options();
  {
    const at::NoGradGuard no_grad;
    seen["logits"] = model_->logits(trunk.seen.at("final_hidden"));
    seen["loss"] =
        at::full({1}, counted_ > 0 ? trunk.main_sum / counted_ : 0.0, options.requires_grad(false));
  }
  compare_map(golden_.forward, "forward", "", TensorClass::Forward, seen);
  std::map<std::string, at::Tensor> grads;
  for (const auto& [name, value] : trunk.grads)
    if (!name.starts_with("mtp.") && name != "streams") grads[name] = value;
  compare_map(golden_.grads, "grads", "grad ", TensorClass::Gradient, grads);
}

void Comparison::compare_mtp() {
  const Run alone = run(0, 1), both = run(1, golden_.mtp_loss_weight);
  std::map<std::string, at::Tensor> forward, grads;
  for (const char* name : {"out", "hidden", "token_loss"})
    forward[name] = alone.seen.at(std::string("mtp.0.") + name);
  const auto options = forward["hidden"].options().requires_grad(false);
  const double loss = counted_mtp_ > 0 ? alone.mtp_sums.front() / counted_mtp_ : 0.0;
  forward["loss"] = at::full({1}, loss, options);
  forward["loss_total"] =
      at::full({1}, both.main_sum / counted_ + golden_.mtp_loss_weight * loss, options);
  for (const auto& [name, value] : alone.grads)
    if (name.starts_with("mtp.") || name == "streams") grads["grad." + name] = value;
  for (const char* name : {"embed.weight", "head.weight"})
    grads[std::string("grad_total.") + name] = both.grads.at(name);
  GoldenFolder::TensorMap expected_forward, expected_grads;
  for (const auto& [name, value] : golden_.mtp)
    (name.starts_with("grad") ? expected_grads : expected_forward)[name] = value;
  compare_map(expected_forward, "mtp", "mtp ", TensorClass::Forward, forward);
  compare_map(expected_grads, "mtp", "mtp ", TensorClass::Gradient, grads);
}

void Comparison::compare_norm(const std::string& name,
                              std::pair<double, double> expected,
                              const at::Tensor& got) {
  const at::Tensor wide = got.to(at::kDouble);
  const double norm = wide.norm().item<double>(), sum = wide.sum().item<double>();
  // max |x - g| <= f * rms allows the norm to move by f * norm and the sum by f * norm * sqrt(n).
  const double limit = kNormShare * expected.first,
               root = std::sqrt(static_cast<double>(got.numel()));
  CompareRow row{
      .name = "total norm " + name, .max_abs = std::abs(norm - expected.first), .allowed = limit};
  row.max_rel = expected.first > 0 ? row.max_abs / expected.first : 0;
  if (!(row.max_abs <= limit) || !(std::abs(sum - expected.second) <= limit * root)) {
    row.verdict = CompareRow::Verdict::Miss;
    row.note = fmt::format("norm {:.9g} and sum {:.9g}, expected {:.9g} and {:.9g}",
                           norm,
                           sum,
                           expected.first,
                           expected.second);
  }
  rows_.push_back(row);
}

void Comparison::compare_totals() {
  const Run both = run(1, golden_.mtp_loss_weight);
  for (const auto& [name, expected] : golden_.grad_norms_total) {
    const auto found = both.grads.find(name);
    if (found != both.grads.end() && found->second.defined()) {
      compare_norm(name, expected, found->second);
      continue;
    }
    CompareRow row =
        not_compared("total norm " + name, "expected, but this model has no such gradient");
    row.verdict = CompareRow::Verdict::Miss;
    rows_.push_back(row);
  }
}

void Comparison::list_absent() {
  for (const std::string& file : golden_.absent_files)
    rows_.push_back(not_compared(file, "the directory has no such file"));
  if (model_->config().num_mtp == 0 && !golden_.mtp.empty())
    rows_.push_back(not_compared("mtp.safetensors", "the weights have no mtp.* tensors"));
}

}  // namespace

std::vector<CompareRow> compare_folder(const fs::path& folder, CompareDtype dtype) {
  return Comparison(folder, dtype).rows();
}

bool all_pass(const std::vector<CompareRow>& rows) {
  const auto count = [&](CompareRow::Verdict v) {
    return std::count_if(
        rows.begin(), rows.end(), [v](const CompareRow& row) { return row.verdict == v; });
  };
  return count(CompareRow::Verdict::Miss) == 0 && count(CompareRow::Verdict::Pass) > 0;
}

}  // namespace lethe
