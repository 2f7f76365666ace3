#include "lethe/recompute/region_trace.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <unordered_set>

#include "lethe/base/error.h"
#include "lethe/core/byte_accounting.h"
#include "lethe/recompute/region_impl.h"
#include "lethe/recompute/region_trace_impl.h"

namespace lethe {
namespace {

struct Sink {
  std::mutex mutex;
  std::vector<TraceEvent> events;
  size_t most = 0;
  int64_t dropped = 0;
};

Sink& sink() {
  static auto* const instance = new Sink;  // never destroyed: threads may outlive main
  return *instance;
}

std::atomic<bool> tracing{false};

int64_t this_thread() {
  static std::atomic<int64_t> threads{0};
  static thread_local const int64_t number = threads++;
  return number;
}

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int64_t live_activation_bytes() {
  if (!byte_accounting_installed()) return -1;
  const ByteReport now = bytes();
  return now.live_of(ByteCategory::Activations) + now.live_of(ByteCategory::Temporaries);
}

}  // namespace

bool is_tracing() {
  return tracing.load(std::memory_order_relaxed);
}

void trace(TraceEvent event) {
  if (!is_tracing()) return;
  event.thread = this_thread();
  event.live_bytes = live_activation_bytes();
  event.time_ns = now_ns();
  Sink& to = sink();
  const std::lock_guard lock(to.mutex);
  if (to.events.size() < to.most)
    to.events.push_back(std::move(event));
  else
    ++to.dropped;
}

void trace_mark(std::string_view name) {
  if (is_tracing()) trace({.kind = TraceEvent::Kind::Mark, .name = std::string(name)});
}

TraceSpan::TraceSpan(TraceEvent::Kind begin, const std::string& name, Trigger::Kind cause)
    : end_(begin == TraceEvent::Kind::RunBegin ? TraceEvent::Kind::RunEnd
                                               : TraceEvent::Kind::ReplayEnd),
      name_(is_tracing() ? &name : nullptr),
      cause_(cause) {
  if (name_ != nullptr) trace({.kind = begin, .name = name, .cause = cause});
}

TraceSpan::~TraceSpan() {
  if (name_ != nullptr) trace({.kind = end_, .name = *name_, .bytes = bytes_, .cause = cause_});
}

RegionTrace::RegionTrace(size_t most_events) {
  Sink& to = sink();
  const std::lock_guard lock(to.mutex);
  LETHE_CHECK(ConfigError,
              !is_tracing(),
              "region trace: one trace may live at a time, got a second; end the first");
  to.events.clear();
  to.most = most_events;
  to.dropped = 0;
  tracing = true;
}

RegionTrace::~RegionTrace() {
  tracing = false;
  Sink& to = sink();
  const std::lock_guard lock(to.mutex);
  std::vector<TraceEvent>().swap(to.events);
}

std::vector<TraceEvent> RegionTrace::take() {
  Sink& from = sink();
  const std::lock_guard lock(from.mutex);
  return std::exchange(from.events, {});
}

int64_t RegionTrace::dropped() const {
  Sink& from = sink();
  const std::lock_guard lock(from.mutex);
  return from.dropped;
}

// What regions tell.

int64_t Region::given_up_bytes() const {
  int64_t bytes = 0;
  for (const SavedStorage& saved : record_->inside)
    if (saved.storage.expired()) bytes += saved.bytes;
  return bytes;
}

int64_t Region::restored_bytes() const {
  std::unordered_set<const c10::StorageImpl*> seen;
  int64_t bytes = 0;
  const auto add = [&](const c10::StorageImpl* storage) {
    if (storage != nullptr && seen.insert(storage).second)
      bytes += static_cast<int64_t>(storage->nbytes());
  };
  for (const SlotValue& value : slots_) add(storage_of(value.tensor));
  for (size_t k = 0; k < outputs_.size(); ++k) {
    const Output& output = outputs_[k];
    if (output.restored.defined())
      add(storage_of(output.restored));
    else if (const auto refilled = output.storage.lock(); refilled && record_->released[k])
      add(refilled.get());
  }
  return bytes;
}

void Region::trace_release(size_t k) {
  const std::lock_guard lock(mutex_);
  if (k >= outputs_.size() || outputs_[k].views == 0) return;
  trace({.kind = TraceEvent::Kind::Release, .name = name(), .bytes = outputs_[k].bytes});
}

}  // namespace lethe
