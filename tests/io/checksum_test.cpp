#include "lethe/io/checksum.h"

#include "support/temp_folder.h"
#include <gtest/gtest.h>

#include "lethe/base/error.h"
#include "lethe/io/atomic_file.h"

namespace lethe {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Check values of the CRC catalogue and of RFC 3720 (B.4).
TEST(Checksum, Crc32cHasThePublishedValues) {
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xe3069283u);
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\0'))), 0x8a9136aau);
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\xff'))), 0x62a8ab43u);
  EXPECT_EQ(crc32c({}), 0u);
}

TEST(Checksum, Crc32cGoesOnFromAnEarlierPart) {
  const std::string text = "The quick brown fox jumps over the lazy dog, and over it again.";
  for (size_t cut = 0; cut <= text.size(); ++cut)
    EXPECT_EQ(crc32c(bytes_of(text.substr(cut)), crc32c(bytes_of(text.substr(0, cut)))),
              crc32c(bytes_of(text)))
        << cut;
}

// FIPS 180-2, B.1.
TEST(Checksum, Sha256HasThePublishedValueInMemoryAndFromAFile) {
  const std::string abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  EXPECT_EQ(sha256_hex(bytes_of("abc")), abc);
  const test::TempFolder folder;
  write_file_atomically(folder.path() / "abc", "abc");
  EXPECT_EQ(sha256_of_file(folder.path() / "abc"), abc);
  EXPECT_THROW((void)sha256_of_file(folder.path() / "none"), DataError);
}

TEST(Sha256, PiecesGiveTheSumOfTheWholeAndMoreMayFollow) {
  const std::string text = "abcdef";
  const auto bytes = std::as_bytes(std::span(text));
  Sha256 hash;
  hash.add(bytes.first(2));
  EXPECT_EQ(hash.hex(), sha256_hex(bytes.first(2)));
  hash.add(bytes.subspan(2));
  EXPECT_EQ(hash.hex(), sha256_hex(bytes));
}

}  // namespace
}  // namespace lethe
