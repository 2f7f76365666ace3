#pragma once

#include <cstdint>
#include <string>

namespace c10 {
struct Storage;
struct StorageImpl;
}  // namespace c10

// The bytes of a storage go and come back, while tensors of it live on: the one helper of what
// recompute and swap release (spec 3 1.4, 2.6; spec 5 1.4). The caller sees to it that nobody reads
// or writes the bytes meanwhile; no call here is safe beside another one on the same storage.
namespace lethe {

/// Frees the bytes; nbytes() is 0 then, and the byte accounting has them no longer. Until
/// refill_storage every access throws c10::Error with `reason`; an access that bypasses the check
/// faults in an inaccessible page. Returns the bytes freed.
int64_t empty_storage(c10::StorageImpl& storage, const std::string& reason);

/// Lends the bytes of `source` to an emptied storage: no copy, no change of any version counter.
/// They live as long as one of the two does.
void refill_storage(c10::StorageImpl& storage, const c10::Storage& source);

/// Storages of this process that are emptied now.
int64_t emptied_storages();

/// The page that emptied CPU storages point to.
const void* guard_page();

}  // namespace lethe
