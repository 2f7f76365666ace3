#include "lethe/offload/host_store.h"

#include <cerrno>
#include <cstring>
#include <system_error>
#include <unordered_map>

#include <sys/mman.h>

#include "lethe/base/error.h"
#include "lethe/io/checksum.h"
#include "lethe/io/scratch_file.h"

namespace lethe {
namespace {

class MemoryStore final : public HostStore {
 public:
  explicit MemoryStore(int64_t budget_bytes) : size_(static_cast<size_t>(budget_bytes)) {
    constexpr int kLazily = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* const memory = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, kLazily, -1, 0);
    LETHE_CHECK(DataError,
                memory != MAP_FAILED,
                "swap: the system must have {} bytes of addresses for --offload-budget-mb, got "
                "'{}'; lower it, or swap to a file with --offload-folder",
                budget_bytes,
                std::generic_category().message(errno));
    memory_ = static_cast<std::byte*>(memory);
  }

  ~MemoryStore() override { ::munmap(memory_, size_); }

  [[nodiscard]] std::string name() const override { return "memory"; }

  void reserve(int64_t /*end*/) override {}

  void write(int64_t offset, std::span<const std::byte> bytes) override {
    std::memcpy(memory_ + offset, bytes.data(), bytes.size());
  }

  void read(int64_t offset, std::span<std::byte> bytes) override {
    std::memcpy(bytes.data(), memory_ + offset, bytes.size());
  }

 private:
  size_t size_;
  std::byte* memory_ = nullptr;
};

class FileStore final : public HostStore {
 public:
  explicit FileStore(const std::filesystem::path& folder) : folder_(folder), file_(folder) {}

  [[nodiscard]] std::string name() const override {
    return fmt::format("a file in {}", folder_.string());
  }

  void reserve(int64_t end) override { file_.reserve(static_cast<uint64_t>(end)); }

  void write(int64_t offset, std::span<const std::byte> bytes) override {
    file_.write(static_cast<uint64_t>(offset), bytes);
    checksums_[offset] = crc32c(bytes);
  }

  void read(int64_t offset, std::span<std::byte> bytes) override {
    file_.read(static_cast<uint64_t>(offset), bytes);
    const uint32_t expected = checksums_.at(offset), got = crc32c(bytes);
    LETHE_CHECK(
        DataError,
        got == expected,
        "{}: the {} bytes at {} must have checksum {:08x} as they were written, got {:08x}; "
        "check the device, or swap to another folder",
        file_.path().string(),
        bytes.size(),
        offset,
        expected,
        got);
  }

 private:
  std::filesystem::path folder_;
  ScratchFile file_;
  std::unordered_map<int64_t, uint32_t> checksums_;  // by offset of the block
};

}  // namespace

std::unique_ptr<HostStore> make_memory_store(int64_t budget_bytes) {
  return std::make_unique<MemoryStore>(budget_bytes);
}

std::unique_ptr<HostStore> make_file_store(const std::filesystem::path& folder) {
  return std::make_unique<FileStore>(folder);
}

}  // namespace lethe
