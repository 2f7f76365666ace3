#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "lethe/offload/host_store.h"
#include "lethe/offload/swap_backend.h"

namespace lethe {

class HostArena;

/// The back end of CPU tensors: one thread ("lethe-swap") copies, in the order of issuing, between
/// tensor storages and a store with a budget. An exception of the store ends its own copy only. The
/// destructor ends what was issued, then the thread.
class CpuSwapBackend final : public SwapBackend {
 public:
  /// What may wait for the thread; issuing one more waits.
  static constexpr int64_t kQueueLength = 8;

  /// budget_bytes > 0: of the blocks, each rounded up to a page of 4096 bytes.
  CpuSwapBackend(std::unique_ptr<HostStore> store,
                 int64_t budget_bytes,
                 int64_t queue_length = kQueueLength);
  ~CpuSwapBackend() override;

  [[nodiscard]] HostBlock alloc_host(int64_t bytes, const std::string& owner) override;
  void free_host(const HostBlock& block) override;
  TransferId issue_out(const void* device, const HostBlock& block) override;
  TransferId issue_in(const HostBlock& block, void* device) override;
  [[nodiscard]] bool done(TransferId id) const override;
  void wait(TransferId id) override;
  [[nodiscard]] SwapBackendReport report() const override;

 private:
  struct Copy {
    HostBlock block;
    const void* from = nullptr;  // out
    void* to = nullptr;          // in
  };

  TransferId issue(const Copy& copy);
  void run();
  void perform(const Copy& copy);

  std::unique_ptr<HostStore> store_;
  const int64_t budget_bytes_;
  const size_t queue_length_;
  mutable std::mutex mutex_;
  std::condition_variable issued_, moved_;
  std::unique_ptr<HostArena> arena_;
  std::deque<Copy> queue_;
  TransferId last_issued_ = 0, last_done_ = 0;
  std::map<TransferId, std::exception_ptr> failures_;
  int64_t queue_peak_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

/// The back end of --swap-layer-input: in memory, or in a file where `folder` is not empty.
/// Throws ConfigError for a budget <= 0.
[[nodiscard]] std::shared_ptr<SwapBackend> make_cpu_swap_backend(
    int64_t budget_bytes, const std::filesystem::path& folder = {});

}  // namespace lethe
