#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "lethe/base/error.h"
#include "lethe/offload/cpu_swap_backend.h"

namespace lethe::test {

/// A store in memory whose copies wait, fail or spoil bytes as a test says. Controlled from any
/// thread.
class TestStore final : public HostStore {
 public:
  explicit TestStore(int64_t bytes) : inner_(make_memory_store(bytes)) {}

  [[nodiscard]] std::string name() const override { return "a store of a test"; }

  void reserve(int64_t /*end*/) override {}

  void write(int64_t offset, std::span<const std::byte> bytes) override {
    step(fail_writes);
    inner_->write(offset, bytes);
    ++writes;
  }

  void read(int64_t offset, std::span<std::byte> bytes) override {
    step(fail_reads);
    inner_->read(offset, bytes);
    if (spoil) bytes[bytes.size() / 2] ^= std::byte{1};
    ++reads;
  }

  /// Copies wait from here on until open().
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }

  void open() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = false;
    }
    opened_.notify_all();
  }

  std::atomic<bool> fail_writes{false}, fail_reads{false}, spoil{false};
  std::atomic<int> writes{0}, reads{0};
  std::atomic<int> delay_ms{0};  // of every copy

 private:
  void step(bool fails) {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [this] { return !closed_; });
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
    if (fails) throw DataError("the store of a test fails as it was told");
  }

  std::unique_ptr<HostStore> inner_;
  std::mutex mutex_;
  std::condition_variable opened_;
  bool closed_ = false;
};

/// A back end over a TestStore.
struct TestTier {
  explicit TestTier(int64_t bytes = int64_t{1} << 24, int64_t queue_length = 8) {
    auto made = std::make_unique<TestStore>(bytes);
    store = made.get();
    backend = std::make_shared<CpuSwapBackend>(std::move(made), bytes, queue_length);
  }

  TestStore* store;  // of the back end
  std::shared_ptr<CpuSwapBackend> backend;
};

/// open() on a thread of its own, some time later: whoever waits meanwhile really waits.
class OpenLater {
 public:
  explicit OpenLater(TestStore& store)
      : thread_([&store] {
          std::this_thread::sleep_for(std::chrono::milliseconds(30));
          store.open();
        }) {}

  OpenLater(const OpenLater&) = delete;
  OpenLater& operator=(const OpenLater&) = delete;

  ~OpenLater() { thread_.join(); }

 private:
  std::thread thread_;
};

}  // namespace lethe::test
