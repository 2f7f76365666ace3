#include "lethe/core/live_blocks.h"

#include <array>
#include <atomic>

#include <ATen/record_function.h>
#include <c10/util/SmallVector.h>

#include "lethe/base/error.h"
#include "lethe/base/text_numbers.h"
#include "lethe/core/counted_block_impl.h"
#include "lethe/core/describe.h"

namespace lethe {
namespace {

// Layers, nodes, shapes and dtypes by number. A program has few of them, they stay.
TextNumbers& texts() {
  static auto* const instance = new TextNumbers;
  return *instance;
}

std::atomic<bool> watching{false};
thread_local BlockLabels thread_labels;

// What a tensor shows of its block. A step shows the same few again and again: texts are made once.
struct Shown {
  c10::SmallVector<int64_t, 5> sizes;
  at::ScalarType type = at::ScalarType::Undefined;
  uint32_t shape = 0, dtype = 0;  // their labels
};

const Shown& shown(const at::Tensor& tensor) {
  static thread_local std::array<Shown, 256> recent;
  const at::IntArrayRef sizes = tensor.sizes();
  size_t hash = static_cast<size_t>(tensor.scalar_type());
  for (const int64_t size : sizes) hash = hash * 31 + static_cast<size_t>(size);
  Shown& at = recent[hash % recent.size()];
  if (at.type != tensor.scalar_type() || at::IntArrayRef(at.sizes) != sizes)
    at = {{sizes.begin(), sizes.end()},
          tensor.scalar_type(),
          texts().number_of(shape_text(tensor)),
          texts().number_of(dtype_text(tensor))};
  return at;
}

void show(const c10::IValue& value) {
  if (value.isTensor()) {
    describe_block(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& t : value.toTensorVector()) describe_block(t);
  }
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction&) {
  return nullptr;
}

void on_end(const at::RecordFunction& call, at::ObserverContext*) {
  for (const c10::IValue& output : call.outputs()) show(output);
}

}  // namespace

BlockLabels labels_of_thread() {
  return thread_labels;
}

std::string label_text(uint32_t label) {
  return texts().text_of(label);
}

BlockWatch::BlockWatch() {
  LETHE_CHECK(ConfigError,
              byte_accounting_installed(),
              "block watch: byte accounting must be installed before blocks are watched, got no "
              "installation; call install_byte_accounting() first in main");
  LETHE_CHECK(ConfigError,
              set_watching(true),
              "block watch: one watch may live at a time, got a second; end the first");
  observer_ = at::addGlobalCallback(at::RecordFunctionCallback(on_start, on_end)
                                        .needsOutputs(true)
                                        .scopes({at::RecordScope::FUNCTION}));
  watching = true;
}

BlockWatch::~BlockWatch() {
  watching = false;
  at::removeCallback(observer_);
  set_watching(false);
}

LiveBlocks BlockWatch::live() const {
  return blocks_now();
}

ProducerTag::ProducerTag(std::string_view layer, std::string_view node)
    : outer_layer_(thread_labels.layer), outer_node_(thread_labels.node) {
  if (watching.load(std::memory_order_relaxed)) thread_labels.layer = texts().number_of(layer);
  set_node(node);
}

ProducerTag::ProducerTag(std::string_view node)
    : outer_layer_(thread_labels.layer), outer_node_(thread_labels.node) {
  set_node(node);
}

ProducerTag::~ProducerTag() {
  thread_labels.layer = outer_layer_;
  thread_labels.node = outer_node_;
}

void ProducerTag::set_node(std::string_view node) {
  if (watching.load(std::memory_order_relaxed)) thread_labels.node = texts().number_of(node);
}

void describe_block(const at::Tensor& tensor) {
  if (!watching.load(std::memory_order_relaxed)) return;
  CountedBlock* const block = nameless_block(tensor);
  if (block == nullptr) return;
  const Shown& labels = shown(tensor);
  set_shape(*block, labels.shape, labels.dtype);
}

}  // namespace lethe
