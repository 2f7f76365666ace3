#include "lethe/core/storage_guard.h"

#include <atomic>

#include <sys/mman.h>
#include <unistd.h>

#include <c10/core/Storage.h>

#include "lethe/base/error.h"

namespace lethe {
namespace {

// LibTorch 2.11 can make a storage throw on access but has no call that ends it (newer ones have,
// spec 3 F8). The flag is private; naming a private member in an explicit instantiation is allowed.
bool c10::StorageImpl::*throws_on_access();

template <bool c10::StorageImpl::*Flag>
struct OpenFlag {
  friend bool c10::StorageImpl::*throws_on_access() { return Flag; }
};

template struct OpenFlag<&c10::StorageImpl::throw_on_immutable_data_ptr_>;

template <class Storage>
void allow_access(Storage& storage) {
  if constexpr (requires { storage.clear_data_ptr_access_error_msg_(); })
    storage.clear_data_ptr_access_error_msg_();
  else
    storage.*throws_on_access() = false;  // set_data_ptr_noswap refreshes what depends on it
}

std::atomic<int64_t> emptied{0};

// Runs when the bytes come back, and when the storage dies without them.
void no_longer_empty(void* /*page*/) {
  --emptied;
}

void drop_source(void* source) {
  delete static_cast<c10::Storage*>(source);
}

}  // namespace

const void* guard_page() {
  static const void* const page = [] {
    void* const p = mmap(nullptr,
                         static_cast<size_t>(sysconf(_SC_PAGESIZE)),
                         PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS,
                         -1,
                         0);
    if (p == MAP_FAILED) fail_internal("storage guard: no page for released storages");
    return p;
  }();
  return page;
}

int64_t empty_storage(c10::StorageImpl& storage, const std::string& reason) {
  const auto freed = static_cast<int64_t>(storage.nbytes());
  void* const page = const_cast<void*>(guard_page());
  void* const nowhere = storage.device().is_cpu() ? page : nullptr;
  ++emptied;
  storage.set_data_ptr_noswap(c10::DataPtr(nowhere, page, &no_longer_empty, storage.device()));
  storage.set_nbytes(0);
  storage.release_data_and_set_meta_custom_data_ptr_error_msg_(reason);
  return freed;
}

int64_t emptied_storages() {
  return emptied;
}

void refill_storage(c10::StorageImpl& storage, const c10::Storage& source) {
  allow_access(storage);
  storage.set_data_ptr_noswap(
      c10::DataPtr(source.mutable_data(), new c10::Storage(source), &drop_source, source.device()));
  storage.set_nbytes(source.nbytes());
}

}  // namespace lethe
