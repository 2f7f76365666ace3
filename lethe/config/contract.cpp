#include "lethe/config/contract.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "lethe/config/contract_names.h"

namespace lethe {
namespace {

/// Where a tensor of the model stands.
struct Place {
  int64_t layer = -1;  // main layer, num_layers + k for MTP block k, -1 = root
  int64_t mtp = -1;
  int64_t ratio = 0;
  bool hash = false;
};

int64_t product(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

std::vector<int64_t> row_shape(const ContractRow& row, const ModelConfig& config, int64_t ratio) {
  std::vector<int64_t> shape;
  for (const Dim dim : row.shape) {
    if (dim != Dim::None) shape.push_back(dim_size(dim, config, ratio));
  }
  return shape;
}

NameMatch match_of(const ContractRow& row, const Place& at, int64_t expert, int64_t part) {
  return {.row = &row,
          .layer = at.mtp >= 0 ? at.mtp : at.layer,
          .in_mtp = at.mtp >= 0,
          .expert = expert,
          .part = part,
          .older = false};
}

/// The hub tensors behind one matrix (of one expert, or of an unstacked row).
void add_parts(ParamSpec& spec,
               const Place& at,
               const std::vector<int64_t>& shape,
               int64_t expert) {
  const ContractRow& row = *spec.row;
  HubPart part{.hub = make_name(Dialect::Hub, match_of(row, at, expert, 0)),
               .checkpoint = make_name(Dialect::Internal, match_of(row, at, expert, 0)),
               .shape = shape,
               .expert = expert,
               .row = 0,
               .hub_row = 0,
               .rows = shape[0]};
  switch (row.packing) {
    case Packing::Whole:
      break;
    case Packing::GateUp: {
      part.rows = part.shape[0] = shape[0] / 2;
      spec.hub.push_back(part);
      part.hub = make_name(Dialect::Hub, match_of(row, at, expert, 1));
      part.row = part.rows;
      break;
    }
    case Packing::AlphaPre:
    case Packing::AlphaPost:
    case Packing::AlphaRes:
      part.shape = {3};
      part.hub_row = static_cast<int64_t>(row.packing) - static_cast<int64_t>(Packing::AlphaPre);
      break;
  }
  spec.hub.push_back(std::move(part));
}

ParamSpec make_spec(const ContractRow& row, const ModelConfig& config, const Place& at) {
  ParamSpec spec{.name = {},
                 .shape = row_shape(row, config, at.ratio),
                 .kind = row.kind,
                 .dtype = row.dtype(),
                 .fp32_kept = row.fp32_memory,
                 .fp32_disk = row.fp32_disk(),
                 .stacked = row.per_expert,
                 .quant = row.quant,
                 .tp = row.tp,
                 .matrix_rows = dim_size(row.matrix_rows, config, at.ratio),
                 .head_rows = dim_size(row.head_rows, config, at.ratio),
                 .layer = at.layer,
                 .mtp = at.mtp,
                 .row = &row,
                 .hub = {}};
  if (!row.per_expert) {
    add_parts(spec, at, spec.shape, -1);
    spec.name = spec.hub.front().checkpoint;
    return spec;
  }
  const std::vector<int64_t> one = spec.shape;
  spec.shape.insert(spec.shape.begin(), config.num_experts);
  for (int64_t e = 0; e < config.num_experts; ++e) add_parts(spec, at, one, e);
  spec.name = stacked_name(match_of(row, at, -1, 0));
  return spec;
}

void add_scope(std::vector<ParamSpec>& out,
               Scope scope,
               const ModelConfig& config,
               const Place& at) {
  for (const ContractRow& row : contract_table()) {
    if (row.scope == scope && applies(row.when, at.ratio, at.hash)) {
      out.push_back(make_spec(row, config, at));
    }
  }
}

DiskDtype disk_dtype(const ParamSpec& spec) {
  if (spec.dtype == ParamDtype::Int) return DiskDtype::I64;
  return spec.fp32_disk ? DiskDtype::F32 : DiskDtype::BF16;
}

DiskTensor disk_tensor(const ParamSpec& spec, Dialect dialect, std::string name) {
  const bool plain_wo_a = dialect == Dialect::Rollout && spec.row->hub == "attn.wo_a.weight";
  return {.name = std::move(name),
          .shape = {},
          .dtype = disk_dtype(spec),
          .quant = plain_wo_a ? QuantClass::KB : spec.quant,
          .pieces = {}};
}

/// Appends `piece` under `name`, to the tensor before if that has the same name (the alphas).
void add_piece(std::vector<DiskTensor>& out, DiskTensor tensor, const Piece& piece) {
  if (out.empty() || out.back().name != tensor.name) out.push_back(std::move(tensor));
  out.back().pieces.push_back(piece);
}

NameMatch match_of_part(const ParamSpec& spec, const HubPart& part) {
  const Place at{.layer = spec.layer, .mtp = spec.mtp};
  return match_of(*spec.row, at, part.expert, part.row > 0 ? 1 : 0);
}

/// One tensor per expert, whatever the parts of the hub.
void add_internal(std::vector<DiskTensor>& out, const ParamSpec& spec, size_t index) {
  const size_t skip = spec.stacked ? 1 : 0;
  for (const HubPart& part : spec.hub) {
    if (part.row > 0) continue;
    DiskTensor tensor = disk_tensor(spec, Dialect::Internal, part.checkpoint);
    tensor.shape.assign(spec.shape.begin() + static_cast<std::ptrdiff_t>(skip), spec.shape.end());
    const int64_t rows = tensor.shape[0];
    add_piece(out,
              std::move(tensor),
              {.param = index, .expert = part.expert, .row = 0, .disk_row = 0, .rows = rows});
  }
}

bool is_one_stack(const ParamSpec& spec, Dialect dialect) {
  return spec.stacked && dialect == Dialect::Transformers && spec.mtp < 0;
}

void add_parts_of(std::vector<DiskTensor>& out,
                  const ParamSpec& spec,
                  size_t index,
                  Dialect dialect) {
  for (const HubPart& part : spec.hub) {
    DiskTensor tensor = disk_tensor(spec, dialect, make_name(dialect, match_of_part(spec, part)));
    tensor.shape = part.shape;
    add_piece(out,
              std::move(tensor),
              {.param = index,
               .expert = part.expert,
               .row = part.row,
               .disk_row = part.hub_row,
               .rows = part.rows});
  }
}

}  // namespace

int64_t ParamSpec::numel() const {
  return product(shape);
}

int64_t DiskTensor::numel() const {
  return product(shape);
}

std::vector<ParamSpec> contract(const ModelConfig& config) {
  std::vector<ParamSpec> out;
  add_scope(out, Scope::RootFirst, config, {});
  for (int64_t i = 0; i < config.num_layers; ++i) {
    add_scope(out,
              Scope::Layer,
              config,
              {.layer = i, .mtp = -1, .ratio = config.ratio(i), .hash = config.is_hash_layer(i)});
  }
  add_scope(out, Scope::RootLast, config, {});
  for (int64_t k = 0; k < config.num_mtp; ++k) {
    const Place at{.layer = config.num_layers + k, .mtp = k, .ratio = 0, .hash = false};
    for (const Scope scope : {Scope::MtpFirst, Scope::Layer, Scope::MtpLast}) {
      add_scope(out, scope, config, at);
    }
  }
  return out;
}

std::vector<DiskTensor> disk_tensors(const std::vector<ParamSpec>& params, Dialect dialect) {
  std::vector<DiskTensor> out;
  for (size_t i = 0; i < params.size(); ++i) {
    const ParamSpec& spec = params[i];
    if (dialect == Dialect::Internal) {
      add_internal(out, spec, i);
    } else if (is_one_stack(spec, dialect)) {
      DiskTensor tensor =
          disk_tensor(spec, dialect, make_name(dialect, match_of_part(spec, spec.hub.front())));
      tensor.shape = spec.shape;
      add_piece(out,
                std::move(tensor),
                {.param = i, .expert = -1, .row = 0, .disk_row = 0, .rows = spec.shape[0]});
    } else {
      add_parts_of(out, spec, i, dialect);
    }
  }
  return out;
}

std::vector<DiskTensor> hub_tensors(const ModelConfig& config) {
  return disk_tensors(contract(config), Dialect::Hub);
}

ParamTotals param_totals(const ModelConfig& config) {
  ParamTotals totals;
  int64_t idle = 0;  // routed experts that a token does not visit
  for (const ParamSpec& spec : contract(config)) {
    if (spec.dtype == ParamDtype::Int) continue;
    int64_t& sum = spec.mtp >= 0 ? totals.mtp : spec.layer >= 0 ? totals.layers : totals.top;
    sum += spec.numel();
    if (spec.stacked && spec.mtp < 0) {
      idle += spec.numel() / config.num_experts * (config.num_experts - config.experts_per_token);
    }
  }
  totals.active_per_token = totals.without_mtp() - idle;
  return totals;
}

}  // namespace lethe
