#include "lethe/io/checkpoint_manifest.h"

#include <set>
#include <span>

#include <nlohmann/json.hpp>

#include "lethe/base/error.h"
#include "lethe/io/checksum.h"

namespace lethe {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kDamaged =
    "go back to an older checkpoint with --allow-fallback-checkpoint, or remove this one";

Json to_json(const CheckpointManifest& m) {
  Json files = Json::array(), chunks = Json::array();
  for (const FileEntry& f : m.files)
    files.push_back({{"name", f.name},
                     {"bytes", f.num_bytes},
                     {"front_crc32c", f.front_crc},
                     {"sha256", f.sha256}});
  for (const ChunkEntry& c : m.chunks)
    chunks.push_back({{"key", c.key}, {"file", c.file}, {"bytes", c.num_bytes}, {"crc32c", c.crc}});
  return {{"container_version", kContainerVersion},
          {"contract_version", m.contract_version},
          {"step", m.step},
          {"writer", m.writer},
          {"layout", m.layout},
          {"files", std::move(files)},
          {"chunks", std::move(chunks)}};
}

// Sum over the manifest itself: no bit of it is trusted without.
uint32_t sum_of(const Json& body) {
  const std::string text =
      body.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  return crc32c(std::as_bytes(std::span(text)));
}

std::string body_text(const Json& body) {
  return body.dump(1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) + "\n";
}

// Reads typed members; anything else than the expected form is one error.
class Reader {
 public:
  explicit Reader(const std::string& where) : where_(where) {}

  [[noreturn]] void refuse(const std::string& what) const {
    fail<CheckpointError>(
        "{} [E-CKPT-MANIFEST]: must be a whole manifest, got {}; {}", where_, what, kDamaged);
  }

  const Json& member(const Json& object, const char* key) const {
    if (!object.is_object() || !object.contains(key)) refuse(fmt::format("no '{}'", key));
    return object.at(key);
  }

  int64_t integer(const Json& object, const char* key, int64_t least) const {
    const Json& value = member(object, key);
    if (!value.is_number_integer() || (value.is_number_unsigned() && value > INT64_MAX) ||
        value.get<int64_t>() < least)
      refuse(fmt::format("'{}' = {}", key, shown(value)));
    return value.get<int64_t>();
  }

  uint32_t crc(const Json& object, const char* key) const {
    const int64_t value = integer(object, key, 0);
    if (value > UINT32_MAX) refuse(fmt::format("'{}' = {}", key, value));
    return static_cast<uint32_t>(value);
  }

  std::string string(const Json& object, const char* key) const {
    const Json& value = member(object, key);
    if (!value.is_string()) refuse(fmt::format("'{}' = {}", key, shown(value)));
    return value.get<std::string>();
  }

  const Json& array(const Json& object, const char* key) const {
    const Json& value = member(object, key);
    if (!value.is_array()) refuse(fmt::format("'{}' that is no list", key));
    return value;
  }

 private:
  static std::string shown(const Json& value) {
    return value.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 60);
  }

  const std::string& where_;
};

void check_files(const CheckpointManifest& m, const std::string& where) {
  std::set<std::string> files;
  for (const FileEntry& f : m.files) {
    const bool plain = !f.name.empty() && f.name.find('/') == std::string::npos && f.name[0] != '.';
    LETHE_CHECK(CheckpointError,
                plain && files.insert(f.name).second,
                "{} [E-CKPT-NAME]: files must be distinct names in the same folder, got '{}'; {}",
                where,
                f.name,
                kDamaged);
  }
  std::set<std::string> keys;
  for (const ChunkEntry& c : m.chunks)
    LETHE_CHECK(CheckpointError,
                files.contains(c.file) && keys.insert(c.key).second,
                "{} [E-CKPT-CHUNK]: each chunk must be listed once, of a listed file, got '{}' of "
                "'{}'; {}",
                where,
                c.key,
                c.file,
                kDamaged);
}

}  // namespace

std::string manifest_text(const CheckpointManifest& manifest) {
  Json body = to_json(manifest);
  const uint32_t sum = sum_of(body);
  return body_text({{"crc32c", sum}, {"manifest", std::move(body)}});
}

CheckpointManifest parse_manifest(std::string_view text, const std::string& where) {
  const Reader read(where);
  const Json whole = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (whole.is_discarded()) read.refuse("text that is not JSON");
  const Json& root = read.member(whole, "manifest");
  if (read.crc(whole, "crc32c") != sum_of(root)) read.refuse("a text with another sum");
  const int64_t version = read.integer(root, "container_version", 0);
  LETHE_CHECK(CheckpointError,
              version == kContainerVersion,
              "{} [E-CKPT-CONTAINER]: the container version must be {}, got {}; use the Lethe that "
              "wrote it",
              where,
              kContainerVersion,
              version);
  CheckpointManifest m{.contract_version = read.integer(root, "contract_version", 0),
                       .step = read.integer(root, "step", 0),
                       .writer = read.string(root, "writer"),
                       .layout = {},
                       .files = {},
                       .chunks = {}};
  const Json& layout = read.member(root, "layout");
  if (!layout.is_object()) read.refuse("a 'layout' that is no object");
  for (const auto& [key, value] : layout.items())
    m.layout[key] = read.integer(layout, key.c_str(), 1);
  for (const Json& f : read.array(root, "files"))
    m.files.push_back({read.string(f, "name"),
                       read.integer(f, "bytes", 0),
                       read.crc(f, "front_crc32c"),
                       read.string(f, "sha256")});
  for (const Json& c : read.array(root, "chunks"))
    m.chunks.push_back({read.string(c, "key"),
                        read.string(c, "file"),
                        read.integer(c, "bytes", 0),
                        read.crc(c, "crc32c")});
  check_files(m, where);
  if (manifest_text(m) != text) read.refuse("a text that was changed after it was written");
  return m;
}

}  // namespace lethe
