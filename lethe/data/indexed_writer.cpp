#include "lethe/data/indexed_writer.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <optional>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lethe/base/error.h"
#include "lethe/io/file_impl.h"

namespace lethe {
namespace {

constexpr int64_t kMostSequenceTokens = int64_t{1} << 30;  // lengths are int32
constexpr size_t kBufferBytes = 1 << 20;

// A file that grows at its end through a buffer.
class PartFile {
 public:
  PartFile(std::filesystem::path path, int flags)
      : path_(std::move(path)), file_(path_, O_RDWR | O_APPEND | flags, "write the file") {
    buffer_.reserve(kBufferBytes);
  }

  ~PartFile() = default;  // what was not flushed belongs to no mark

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  [[nodiscard]] int fd() const { return file_.fd(); }

  template <class T>
  void put(T value) {
    if (buffer_.size() + sizeof(T) > kBufferBytes) flush();
    const auto* const bytes = reinterpret_cast<const std::byte*>(&value);
    buffer_.insert(buffer_.end(), bytes, bytes + sizeof(T));
  }

  void put_text(std::string_view text) {
    for (const char c : text) put(c);
  }

  void flush() {
    file_.write_all(buffer_);
    buffer_.clear();
  }

  void sync() {
    flush();
    file_.sync();
  }

  // Drops what lies behind `bytes`; DataError when there is less.
  void cut(int64_t bytes) {
    struct stat status {};

    if (::fstat(fd(), &status) != 0) detail::fail_errno(path_, "read the size", errno);
    LETHE_CHECK(DataError,
                status.st_size >= bytes,
                "{}: must have the {} bytes that its progress file tells of, got {}; remove the "
                "progress file to begin anew",
                path_.string(),
                bytes,
                status.st_size);
    if (::ftruncate(fd(), bytes) != 0) detail::fail_errno(path_, "cut the file", errno);
  }

 private:
  std::filesystem::path path_;
  detail::File file_;
  std::vector<std::byte> buffer_;
};

template <class T>
void put_as(PartFile& file, std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) {
    if (token < std::numeric_limits<T>::min() ||
        static_cast<int64_t>(token) > static_cast<int64_t>(std::numeric_limits<T>::max()))
      fail_internal(fmt::format("{}: the id {} does not fit", file.path().string(), token));
    file.put(static_cast<T>(token));
  }
}

}  // namespace

// The lengths file holds one int32 per finished sequence: its tokens when its document ends with
// it, the complement (~, negative) when the document goes on.
struct IndexedWriter::Impl {
  IndexedTarget target;
  PartFile bin;
  PartFile lengths;
  std::optional<PartFile> mask;
  IndexedMark mark;

  Impl(const IndexedTarget& t, int flags)
      : target(t), bin(t.name + ".bin.part", flags), lengths(t.name + ".lengths.part", flags) {
    if (::flock(bin.fd(), LOCK_EX | LOCK_NB) != 0) {
      LETHE_CHECK(DataError,
                  errno != EWOULDBLOCK,
                  "{}: must be written by one program at a time, got another one at work; wait for "
                  "it or choose another name",
                  bin.path().string());
      detail::fail_errno(bin.path(), "lock the file", errno);
    }
    if (t.with_mask) mask.emplace(t.name + ".mask.bin.part", flags);
  }

  void go_to(const IndexedMark& to) {
    mark = to;
    bin.cut(to.num_tokens * token_bytes(target.dtype));
    lengths.cut(to.num_sequences * 4);
    if (mask) mask->cut(to.num_tokens);
  }

  void put_tokens(std::span<const int32_t> tokens, bool counted) {
    switch (target.dtype) {
      case TokenDtype::U8:
        put_as<uint8_t>(bin, tokens);
        break;
      case TokenDtype::U16:
        put_as<uint16_t>(bin, tokens);
        break;
      case TokenDtype::I32:
        put_as<int32_t>(bin, tokens);
        break;
      default:
        fail_internal("IndexedWriter: writes uint8, uint16 and int32");
    }
    const auto count = static_cast<int64_t>(tokens.size());
    mark.num_tokens += count;
    mark.open_tokens += count;
    if (!counted) mark.masked_tokens += count;
    if (mask)
      for (int64_t i = 0; i < count; ++i) mask->put(static_cast<uint8_t>(counted ? 1 : 0));
  }

  void end_sequence(bool ends_document) {
    const auto length = static_cast<int32_t>(mark.open_tokens);
    lengths.put(ends_document ? length : ~length);
    ++mark.num_sequences;
    mark.num_documents += ends_document ? 1 : 0;
    mark.open_tokens = 0;
  }

  template <class F>
  void for_each_length(F visit) const {
    std::vector<int32_t> block(kBufferBytes / 4);
    for (int64_t s = 0; s < mark.num_sequences; s += static_cast<int64_t>(block.size())) {
      const auto count = std::min(block.size(), static_cast<size_t>(mark.num_sequences - s));
      const ssize_t got = ::pread(lengths.fd(), block.data(), 4 * count, 4 * s);
      if (got < 0) detail::fail_errno(lengths.path(), "read the file", errno);
      LETHE_CHECK(DataError,
                  got == static_cast<ssize_t>(4 * count),
                  "{}: must keep its bytes while it is written, got fewer; is another program at "
                  "work on it?",
                  lengths.path().string());
      for (size_t i = 0; i < count; ++i) visit(block[i] < 0 ? ~block[i] : block[i], block[i] >= 0);
    }
  }

  void write_index(const std::string& path, TokenDtype dtype) const {
    PartFile index(path, O_CREAT | O_TRUNC);
    index.put_text(std::string_view("MMIDIDX\0\0", 9));
    index.put(uint64_t{1});
    index.put(static_cast<uint8_t>(dtype));
    index.put(static_cast<uint64_t>(mark.num_sequences));
    index.put(static_cast<uint64_t>(mark.num_documents + 1));
    for_each_length([&](int32_t length, bool) { index.put(length); });
    int64_t pointer = 0, sequence = 0;
    for_each_length([&](int32_t length, bool) {
      index.put(pointer);
      pointer += length * token_bytes(dtype);
    });
    index.put(int64_t{0});
    for_each_length([&](int32_t, bool ends_document) {
      ++sequence;
      if (ends_document) index.put(sequence);
    });
    index.sync();
  }
};

IndexedWriter::IndexedWriter(const IndexedTarget& target)
    : impl_(std::make_unique<Impl>(target, O_CREAT)) {
  impl_->go_to({});
}

IndexedWriter::IndexedWriter(const IndexedTarget& target, const IndexedMark& mark)
    : impl_(std::make_unique<Impl>(target, 0)) {
  impl_->go_to(mark);
}

IndexedWriter::~IndexedWriter() = default;

void IndexedWriter::append(std::span<const int32_t> tokens, bool counted) {
  while (!tokens.empty()) {
    if (impl_->mark.open_tokens == kMostSequenceTokens) impl_->end_sequence(false);
    const auto room = static_cast<size_t>(kMostSequenceTokens - impl_->mark.open_tokens);
    const size_t count = std::min(room, tokens.size());
    impl_->put_tokens(tokens.first(count), counted);
    tokens = tokens.subspan(count);
  }
}

void IndexedWriter::end_document() {
  if (impl_->mark.open_tokens > 0) impl_->end_sequence(true);
}

const IndexedMark& IndexedWriter::mark() const {
  return impl_->mark;
}

IndexedMark IndexedWriter::sync() {
  impl_->bin.sync();
  impl_->lengths.sync();
  if (impl_->mask) impl_->mask->sync();
  return impl_->mark;
}

std::vector<IndexedWriter::Rename> IndexedWriter::finish(bool keep_mask) {
  Impl& w = *impl_;
  if (w.mark.open_tokens > 0) fail_internal("IndexedWriter: finished within a document");
  sync();
  const std::string& name = w.target.name;
  std::vector<Rename> renames;
  if (keep_mask && w.mask) {
    w.write_index(name + ".mask.idx.part", TokenDtype::U8);
    renames.push_back({name + ".mask.bin.part", name + ".mask.bin"});
    renames.push_back({name + ".mask.idx.part", name + ".mask.idx"});
  }
  w.write_index(name + ".idx.part", w.target.dtype);
  renames.push_back({name + ".bin.part", name + ".bin"});
  renames.push_back({name + ".idx.part", name + ".idx"});
  return renames;
}

}  // namespace lethe
