#include "lethe/core/param_store.h"

#include <unordered_map>

#include <fmt/ranges.h>

#include "lethe/base/error.h"
#include "lethe/core/byte_accounting.h"
#include "lethe/core/leaf_gradient.h"

namespace lethe {
namespace {

at::ScalarType row_type(const ParamRow& row, ParamPlacement placement) {
  if (row.is_integer) return at::kInt;
  switch (placement.float_type) {
    case ParamPlacement::Float::Fp64:
      return at::kDouble;
    case ParamPlacement::Float::Bf16:
      return row.fp32_kept ? at::kFloat : at::kBFloat16;
    case ParamPlacement::Float::Fp32:
      break;
  }
  return at::kFloat;
}

at::Device device_of(ParamPlacement placement) {
  switch (placement.device) {
    case ParamPlacement::Device::Cuda:
      return at::Device(at::kCUDA);
    case ParamPlacement::Device::Meta:
      return at::Device(at::kMeta);
    case ParamPlacement::Device::Cpu:
      break;
  }
  return at::Device(at::kCPU);
}

void require_gradient(const at::Tensor& value) {
  value.set_requires_grad(true);
  if (value.scalar_type() == at::kBFloat16 && has_leaf_gradient_dtype())
    keep_float32_gradient(value);
  count_gradients_of(value);
}

}  // namespace

struct ParamStore::Impl {
  std::vector<ParamRow> rows;
  std::vector<at::Tensor> values;
  std::vector<bool> claimed;
  std::unordered_map<std::string, size_t> by_name;
};

ParamStore::ParamStore(std::vector<ParamRow> rows, ParamPlacement placement)
    : impl_(std::make_unique<Impl>()) {
  const ByteTag tag(ByteCategory::Parameters);
  for (ParamRow& row : rows) {
    const auto options =
        at::TensorOptions().dtype(row_type(row, placement)).device(device_of(placement));
    if (!impl_->by_name.emplace(row.name, impl_->rows.size()).second)
      fail_internal(fmt::format("parameter store: two rows are named {}", row.name));
    impl_->values.push_back(at::empty(row.shape, options));
    if (row.trainable && !row.is_integer) require_gradient(impl_->values.back());
    impl_->rows.push_back(std::move(row));
  }
  impl_->claimed.assign(impl_->rows.size(), false);
}

ParamStore::~ParamStore() = default;

size_t ParamStore::size() const {
  return impl_->rows.size();
}

const ParamRow& ParamStore::row(size_t i) const {
  return impl_->rows[i];
}

const at::Tensor& ParamStore::value(size_t i) const {
  return impl_->values[i];
}

bool ParamStore::has(std::string_view name) const {
  return impl_->by_name.contains(std::string(name));
}

const at::Tensor& ParamStore::value(std::string_view name) const {
  const auto found = impl_->by_name.find(std::string(name));
  LETHE_CHECK(CheckpointError,
              found != impl_->by_name.end(),
              "parameter store: no contract row is named '{}'; contract names look like "
              "'decoder.layers.0.input_layernorm.weight'",
              name);
  return impl_->values[found->second];
}

int64_t ParamStore::total_elements() const {
  int64_t sum = 0;
  for (size_t i = 0; i < size(); ++i)
    if (!row(i).is_integer) sum += value(i).numel();
  return sum;
}

ParamScope ParamStore::root() {
  return {*this, ""};
}

const at::Tensor& ParamStore::claim(const std::string& name, const std::vector<int64_t>& shape) {
  const auto found = impl_->by_name.find(name);
  if (found == impl_->by_name.end())
    fail_internal(
        fmt::format("parameter store: a module claims {}, which no contract row has", name));
  const ParamRow& row = impl_->rows[found->second];
  if (row.shape != shape)
    fail_internal(fmt::format("parameter store: {} is [{}] in the contract and [{}] in its module",
                              name,
                              fmt::join(row.shape, ","),
                              fmt::join(shape, ",")));
  if (impl_->claimed[found->second])
    fail_internal(fmt::format("parameter store: {} is claimed twice", name));
  impl_->claimed[found->second] = true;
  return impl_->values[found->second];
}

void ParamStore::expect_all_claimed() const {
  for (size_t i = 0; i < size(); ++i)
    if (!impl_->claimed[i])
      fail_internal(fmt::format("parameter store: no module claims {}", row(i).name));
}

void ParamStore::set_trained(const std::function<bool(const ParamRow&)>& wanted) {
  for (size_t i = 0; i < size(); ++i)
    if (row(i).trainable && !row(i).is_integer) impl_->values[i].set_requires_grad(wanted(row(i)));
}

at::Tensor ParamScope::add(std::string_view suffix, const std::vector<int64_t>& shape) const {
  return store_->claim(prefix_ + std::string(suffix), shape);
}

ParamScope ParamScope::sub(std::string_view segment) const {
  return {*store_, fmt::format("{}{}.", prefix_, segment)};
}

}  // namespace lethe
