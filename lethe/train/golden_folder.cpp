#include "lethe/train/golden_folder.h"

#include <numeric>

#include <nlohmann/json.hpp>

#include "lethe/base/error.h"
#include "lethe/checkpoint/tensor_file.h"
#include "lethe/core/describe.h"
#include "lethe/io/atomic_file.h"

namespace lethe {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

Json read_json(const fs::path& path) {
  const Json json = Json::parse(read_text_file(path.string()), nullptr, /*allow_exceptions=*/false);
  LETHE_CHECK(
      DataError,
      json.is_object(),
      "{}: must be a JSON object, got something else; write it again with the tool that made it",
      path.string());
  return json;
}

GoldenFolder::TensorMap read_tensors(GoldenFolder& folder, const char* name) {
  const fs::path path = folder.path / name;
  GoldenFolder::TensorMap out;
  if (!fs::exists(path)) {
    folder.absent_files.push_back(name);
    return out;
  }
  const TensorFile file(path.string());
  for (const std::string& tensor : file.names()) out.emplace(tensor, file.read(tensor));
  return out;
}

std::optional<double> number(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? std::optional<double>(found->get<double>())
                                                     : std::nullopt;
}

void read_tolerances(GoldenFolder& folder) {
  const fs::path path = folder.path / "tolerance.json";
  if (!fs::exists(path)) return folder.absent_files.push_back("tolerance.json");
  const Json json = read_json(path);
  for (const char* part : {"forward", "grads", "mtp"}) {
    if (!json.contains(part)) continue;
    for (const auto& [name, entry] : json[part].items())
      folder.tolerances[part][name] = {.max_abs = number(entry, "max_abs"),
                                       .norm64 = number(entry, "norm64"),
                                       .sum64 = number(entry, "sum64")};
  }
}

void read_norms(GoldenFolder& folder) {
  const fs::path path = folder.path / "grad_norms_total.json";
  if (!fs::exists(path)) return folder.absent_files.push_back("grad_norms_total.json");
  const Json json = read_json(path);
  for (const auto& [name, pair] : json.items()) {
    LETHE_CHECK(DataError,
                pair.is_array() && pair.size() == 2 && pair[0].is_number() && pair[1].is_number(),
                "{}: '{}' must be [norm, sum], got {}; write it again with the tool that made it",
                path.string(),
                name,
                pair.dump());
    folder.grad_norms_total[name] = {pair[0].get<double>(), pair[1].get<double>()};
  }
}

// Without run.json one document fills each row.
void read_run(GoldenFolder& folder) {
  const int64_t row = folder.ids.size(1);
  folder.document_lengths = {row};
  const fs::path path = folder.path / "run.json";
  if (!fs::exists(path)) return folder.absent_files.push_back("run.json");
  const Json json = read_json(path);
  folder.mtp_loss_weight = number(json, "mtp_loss_weight").value_or(0);
  if (!json.contains("documents")) return;
  const Json& documents = json["documents"];
  int64_t sum = 0;
  folder.document_lengths.clear();
  for (const Json& length : documents) {
    LETHE_CHECK(DataError,
                length.is_number_integer() && length.get<int64_t>() > 0,
                "{}: 'documents' must hold positive lengths, got {}; list the lengths of one row",
                path.string(),
                length.dump());
    folder.document_lengths.push_back(length.get<int64_t>());
    sum += folder.document_lengths.back();
  }
  LETHE_CHECK(
      DataError,
      sum == row,
      "{}: 'documents' must sum to the row's {} tokens, got {}; list the lengths of one row",
      path.string(),
      row,
      sum);
}

void read_inputs(GoldenFolder& folder) {
  const TensorFile file((folder.path / "inputs.safetensors").string());
  folder.ids = file.read("ids").to(at::kLong);
  folder.labels = file.read("labels").to(at::kLong);
  LETHE_CHECK(DataError,
              folder.ids.dim() == 2 && folder.ids.sizes() == folder.labels.sizes() &&
                  folder.ids.numel() > 0,
              "{}: ids and labels must both be [B,S], got {} and {}; write one label per token",
              file.path(),
              shape_text(folder.ids),
              shape_text(folder.labels));
}

}  // namespace

Tolerance GoldenFolder::tolerance(const std::string& part, const std::string& name) const {
  const auto section = tolerances.find(part);
  if (section == tolerances.end()) return {};
  const auto entry = section->second.find(name);
  return entry == section->second.end() ? Tolerance{} : entry->second;
}

std::vector<int32_t> GoldenFolder::cu_seqlens() const {
  std::vector<int32_t> cu{0};
  for (int64_t row = 0; row < ids.size(0); ++row)
    for (const int64_t length : document_lengths)
      cu.push_back(cu.back() + static_cast<int32_t>(length));
  return cu;
}

GoldenFolder read_golden_folder(const fs::path& path) {
  LETHE_CHECK(
      DataError,
      fs::is_directory(path),
      "compare: '{}' must be a folder of expected tensors, got none; see tools/make_golden.py",
      path.string());
  GoldenFolder folder{.path = path};
  read_inputs(folder);
  read_run(folder);
  folder.forward = read_tensors(folder, "forward.safetensors");
  folder.grads = read_tensors(folder, "grads.safetensors");
  folder.mtp = read_tensors(folder, "mtp.safetensors");
  read_tolerances(folder);
  read_norms(folder);
  return folder;
}

}  // namespace lethe
