#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lethe {

/// One tensor of a checkpoint's data files.
struct ChunkEntry {
  std::string key;   // "NAME|box=OFFSET:SIZE,...": the part of the global tensor that it holds
  std::string file;  // in the same folder
  int64_t num_bytes = 0;
  uint32_t crc = 0;  // CRC-32C of its bytes

  bool operator==(const ChunkEntry&) const = default;
};

/// One file of a checkpoint's folder.
struct FileEntry {
  std::string name;
  int64_t num_bytes = 0;
  uint32_t front_crc = 0;  // CRC-32C of the bytes before the first chunk; 0 for common.json
  std::string sha256;      // 64 hexadecimal digits; empty = not taken (data files without sha256)

  bool operator==(const FileEntry&) const = default;
};

/// manifest.json of a step folder: everything that proves the other files (spec 6 4.2, 4.6).
struct CheckpointManifest {
  int64_t contract_version = 0;
  int64_t step = 0;
  std::string writer;                     // build that wrote it
  std::map<std::string, int64_t> layout;  // sizes of the parallel dimensions
  std::vector<FileEntry> files;
  std::vector<ChunkEntry> chunks;

  bool operator==(const CheckpointManifest&) const = default;
};

/// Raised by one whenever the form of manifest.json or of the folder changes.
inline constexpr int64_t kContainerVersion = 1;

/// The one text of this manifest.
[[nodiscard]] std::string manifest_text(const CheckpointManifest& manifest);

/// Back from the text. The text must be exactly what manifest_text writes, so that no flipped bit
/// goes unseen. Throws CheckpointError with `where`: [E-CKPT-MANIFEST] not such a text,
/// [E-CKPT-CONTAINER] another container version, [E-CKPT-NAME] a file outside the folder,
/// [E-CKPT-CHUNK] a chunk twice or of a file that is not listed.
[[nodiscard]] CheckpointManifest parse_manifest(std::string_view text, const std::string& where);

}  // namespace lethe
