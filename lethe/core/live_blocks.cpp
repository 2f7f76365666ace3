#include "lethe/core/live_blocks.h"

#include <atomic>

#include <ATen/record_function.h>

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
  if (CountedBlock* const block = nameless_block(tensor))
    set_shape(*block, texts().number_of(shape_text(tensor)), texts().number_of(dtype_text(tensor)));
}

}  // namespace lethe
