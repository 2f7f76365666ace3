#include "lethe/core/storage_guard.h"

#include "support/expect_error.h"
#include "support/gradcheck.h"
#include <gtest/gtest.h>

#include <ATen/core/Tensor.h>
#include <ATen/ops/rand.h>

#include "lethe/core/byte_accounting.h"

// Gate test S3 of spec 3 2.5, and what swap adds to it.
namespace lethe {
namespace {

c10::StorageImpl& storage_of(const at::Tensor& t) {
  return *t.storage().unsafeGetStorageImpl();
}

TEST(StorageGuard, ReleaseAndRefillSwapTheBytesUnderEveryAlias) {
  const at::Tensor y = at::rand({8, 8});
  const at::Tensor view = y.view({64}), detached = y.detach(), copy = y.clone(), again = y.clone();
  const int64_t version = y._version();
  EXPECT_EQ(empty_storage(storage_of(y), "gone"), 256);
  EXPECT_EQ(view.storage().nbytes(), 0U);
  EXPECT_EQ(view._version(), version);
  refill_storage(storage_of(y), again.storage());
  EXPECT_EQ(y.const_data_ptr(), again.const_data_ptr());
  test::expect_bitwise(view.view({8, 8}), copy, "view");
  test::expect_bitwise(detached, copy, "detached");
  EXPECT_EQ(y._version(), version);
}

TEST(StorageGuard, AnEmptiedStorageCountsNothingAndALentOneCountsOnce) {
  install_byte_accounting();
  at::Tensor y = at::rand({1000});
  const at::Tensor alias = y.detach();
  const int64_t with_bytes = bytes().live;
  empty_storage(storage_of(y), "gone");
  EXPECT_EQ(bytes().live, with_bytes - 4000);
  {
    const at::Tensor again = at::rand({1000});
    refill_storage(storage_of(y), again.storage());
    EXPECT_EQ(bytes().live, with_bytes);
  }
  EXPECT_EQ(bytes().live, with_bytes);
  y.reset();
  EXPECT_EQ(bytes().live, with_bytes);
}

TEST(StorageGuard, EmptiedStoragesAreCountedUntilTheyAreFilledOrDie) {
  at::Tensor filled = at::rand({8}), dropped = at::rand({8});
  const at::Tensor again = filled.clone();
  const int64_t before = emptied_storages();
  empty_storage(storage_of(filled), "gone");
  empty_storage(storage_of(dropped), "gone");
  EXPECT_EQ(emptied_storages(), before + 2);
  refill_storage(storage_of(filled), again.storage());
  EXPECT_EQ(emptied_storages(), before + 1);
  dropped.reset();
  EXPECT_EQ(emptied_storages(), before);
}

TEST(StorageGuard, AReadOfReleasedBytesSaysWhy) {
  const at::Tensor y = at::rand({8});
  const at::Tensor again = y.clone();
  empty_storage(storage_of(y), "swapped out behind layer 3");
  test::expect_error<c10::Error>([&] { (void)y.sum(); }, {"swapped out behind layer 3"});
  test::expect_error<c10::Error>([&] { y.detach().add_(1); }, {"swapped out behind layer 3"});
  refill_storage(storage_of(y), again.storage());
  EXPECT_NO_THROW((void)y.sum());
}

}  // namespace
}  // namespace lethe
