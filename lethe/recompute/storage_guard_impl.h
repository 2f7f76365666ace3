#pragma once

#include <cstdint>
#include <string>

#include <c10/core/Storage.h>

// The bytes of a storage go and come back, while tensors of it live on (spec 3 1.4, 2.6).
namespace lethe {

/// Frees the bytes. Until refill_storage every access throws c10::Error with `reason`; an access
/// that bypasses the check faults in an inaccessible page. Returns the bytes freed.
int64_t empty_storage(c10::StorageImpl& storage, const std::string& reason);

/// Lends the bytes of `source` to an emptied storage: no copy, no change of any version counter.
void refill_storage(c10::StorageImpl& storage, const c10::Storage& source);

/// The page that emptied CPU storages point to.
const void* guard_page();

}  // namespace lethe
