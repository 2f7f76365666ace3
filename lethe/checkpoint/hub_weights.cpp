#include "lethe/checkpoint/hub_weights.h"

#include <algorithm>
#include <set>

#include <fmt/ranges.h>

#include "lethe/base/error.h"
#include "lethe/checkpoint/tensor_file.h"
#include "lethe/config/contract_names.h"
#include "lethe/core/describe.h"

namespace lethe {
namespace {

constexpr size_t kNamesShown = 40;

std::string list_names(const std::vector<std::string>& names) {
  const std::vector<std::string> shown(
      names.begin(),
      names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kNamesShown)));
  return fmt::format("{}{}", fmt::join(shown, ", "), names.size() > kNamesShown ? ", ..." : "");
}

void check_names(const TensorFile& file, const std::vector<DiskTensor>& expected) {
  std::set<std::string> wanted;
  std::vector<std::string> missing, unexpected;
  for (const DiskTensor& t : expected) {
    wanted.insert(t.name);
    if (!file.has(t.name)) missing.push_back(t.name);
  }
  for (const std::string& name : file.names())
    if (!wanted.contains(name)) unexpected.push_back(name);
  LETHE_CHECK(CheckpointError,
              missing.empty(),
              "{} [E-MISSING]: every tensor that config.json implies must be there, got {} "
              "missing: {}; is it the "
              "config.json of another model?",
              file.path(),
              missing.size(),
              list_names(missing));
  LETHE_CHECK(
      CheckpointError,
      unexpected.empty(),
      "{} [E-UNEXPECTED]: only tensors that config.json implies may be there, got {} more: {}; {}",
      file.path(),
      unexpected.size(),
      list_names(unexpected),
      explain_unknown_name(unexpected.front()));
}

void check_shape(const TensorFile& file, const DiskTensor& t) {
  const auto shape = file.shape(t.name);
  LETHE_CHECK(CheckpointError,
              shape == t.shape,
              "{} [E-SHAPE]: {} must be [{}] by config.json, got [{}]; is it the "
              "config.json of another model?",
              file.path(),
              t.name,
              fmt::join(t.shape, ","),
              fmt::join(shape, ","));
}

// The rows of an internal tensor that a piece covers.
at::Tensor rows_of(const at::Tensor& internal, const Piece& piece) {
  const at::Tensor unstacked = piece.expert >= 0 ? internal[piece.expert] : internal;
  return unstacked.narrow(0, piece.row, piece.rows);
}

void check_hash_table(const std::string& where, const at::Tensor& table, int64_t num_experts) {
  const at::Tensor sorted = std::get<0>(table.sort(/*dim=*/1));
  const int64_t lowest = sorted.min().item<int64_t>(), highest = sorted.max().item<int64_t>();
  LETHE_CHECK(
      CheckpointError,
      lowest >= 0 && highest < num_experts,
      "{} [E-HASH-RANGE]: expert ids must be in [0, {}), got {}; is the table of another model?",
      where,
      num_experts,
      lowest < 0 ? lowest : highest);
  const int64_t width = sorted.size(1);
  const bool repeats =
      width > 1 &&
      sorted.narrow(1, 1, width - 1).eq(sorted.narrow(1, 0, width - 1)).any().item<bool>();
  LETHE_CHECK(CheckpointError,
              !repeats,
              "{} [E-HASH-RANGE]: the experts of one token must differ, got a row with the same id "
              "twice; is the file damaged?",
              where);
}

// How often each element was written, by internal tensor: exactly once is the proof.
class Coverage {
 public:
  explicit Coverage(const std::vector<ParamSpec>& params)
      : params_(params), written_(params.size()) {}

  void add(const Piece& piece) {
    const ParamSpec& spec = params_[piece.param];
    int64_t row_elements = 1;
    for (size_t d = spec.stacked ? 2 : 1; d < spec.shape.size(); ++d) row_elements *= spec.shape[d];
    written_[piece.param] += piece.rows * row_elements;
  }

  void prove(const std::string& path) const {
    for (size_t i = 0; i < params_.size(); ++i)
      LETHE_CHECK(CheckpointError,
                  written_[i] == params_[i].numel(),
                  "{} [E-UNCOVERED]: each of the {} elements of {} must be written once, got {} "
                  "writes; please report it",
                  path,
                  params_[i].numel(),
                  params_[i].name,
                  written_[i]);
  }

 private:
  const std::vector<ParamSpec>& params_;
  std::vector<int64_t> written_;
};

}  // namespace

void import_hub_weights(const TensorFile& file, const ModelConfig& config, ParamStore& store) {
  const at::NoGradGuard no_grad;
  const std::vector<ParamSpec> params = contract(config);
  const std::vector<DiskTensor> tensors = disk_tensors(params, Dialect::Hub);
  check_names(file, tensors);
  for (const DiskTensor& t : tensors) check_shape(file, t);
  Coverage coverage(params);
  for (const DiskTensor& t : tensors) {
    const at::Tensor value = file.read(t.name);
    if (t.quant == QuantClass::KI)
      check_hash_table(file.path() + " " + t.name, value, config.num_experts);
    for (const Piece& piece : t.pieces) {
      rows_of(store.value(piece.param), piece).copy_(value.narrow(0, piece.disk_row, piece.rows));
      coverage.add(piece);
    }
  }
  coverage.prove(file.path());
}

at::Tensor assemble_hub_tensor(const DiskTensor& tensor, const InternalTensor& internal) {
  at::Tensor out;
  for (const Piece& piece : tensor.pieces) {
    const at::Tensor whole = internal(piece.param);
    if (!whole.defined()) return {};
    if (!out.defined()) out = at::empty(tensor.shape, whole.options().requires_grad(false));
    out.narrow(0, piece.disk_row, piece.rows).copy_(rows_of(whole, piece));
  }
  return out;
}

void export_hub_weights(const ModelConfig& config,
                        const ParamStore& store,
                        const std::string& path) {
  const at::NoGradGuard no_grad;
  const std::vector<ParamSpec> params = contract(config);
  std::vector<std::pair<std::string, at::Tensor>> out;
  for (const DiskTensor& t : disk_tensors(params, Dialect::Hub)) {
    const at::Tensor value = assemble_hub_tensor(t, [&](size_t i) { return store.value(i); });
    out.emplace_back(t.name, value.to(t.quant == QuantClass::KI ? at::kLong : at::kFloat).cpu());
  }
  write_tensor_file(path, out);
}

}  // namespace lethe
