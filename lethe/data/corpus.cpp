#include "lethe/data/corpus.h"

#include <algorithm>

#include "lethe/base/error.h"
#include "lethe/io/checksum.h"
#include "lethe/io/file_facts.h"

namespace lethe {
namespace {

// First document in [0, count) whose end lies behind `at`.
template <class F>
int64_t first_ending_behind(int64_t count, int64_t at, F end_of) {
  int64_t low = 0, high = count;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (end_of(middle) > at)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

std::string without_ending(const std::string& path) {
  for (const std::string_view ending : {".idx", ".bin"})
    if (path.ends_with(ending)) return path.substr(0, path.size() - ending.size());
  return path;
}

void check_card(const DatasetCard& card, const IndexedFile& file) {
  LETHE_CHECK(
      DataError,
      card.tokens == file.layout().num_tokens() && card.documents == file.layout().num_documents(),
      "{}.json: must describe the {} tokens in {} documents of {}.idx, got {} in {}; it belongs "
      "to other data, prepare that anew or remove the description",
      file.name(),
      file.layout().num_tokens(),
      file.layout().num_documents(),
      file.name(),
      card.tokens,
      card.documents);
}

}  // namespace

Corpus Corpus::open(const std::string& path) {
  const std::string name = without_ending(path);
  // Half a pair is reported as such, unless it is a text of that very name.
  const bool is_pair = file_exists(name + ".idx") ||
                       (file_exists(name + ".bin") && (name != path || !file_exists(path)));
  if (is_pair) return Corpus(IndexedFile(name));
  return Corpus(load_text(path), path);
}

Corpus::Corpus(ByteText text, std::string name)
    : name_(std::move(name)), tokens_(std::move(text)) {}

Corpus::Corpus(IndexedFile file)
    : name_(file.name()), tokens_(std::move(file)), card_(read_card(name_)) {
  if (card_) check_card(*card_, std::get<IndexedFile>(tokens_));
}

bool Corpus::has_mask() const {
  const auto* const file = std::get_if<IndexedFile>(&tokens_);
  return file != nullptr && file->has_mask();
}

int64_t Corpus::num_tokens() const {
  if (const auto* const text = std::get_if<ByteText>(&tokens_)) return std::ssize(text->bytes);
  return std::get<IndexedFile>(tokens_).layout().num_tokens();
}

int64_t Corpus::num_documents() const {
  if (const auto* const text = std::get_if<ByteText>(&tokens_)) return std::ssize(text->documents);
  return std::get<IndexedFile>(tokens_).layout().num_documents();
}

TokenRange Corpus::document(int64_t d) const {
  if (const auto* const text = std::get_if<ByteText>(&tokens_))
    return text->documents[static_cast<size_t>(d)];
  return std::get<IndexedFile>(tokens_).document(d);
}

void Corpus::for_each_document(TokenRange within,
                               const std::function<void(int64_t, TokenRange)>& visit) const {
  const int64_t count = num_documents();
  for (int64_t d =
           first_ending_behind(count, within.begin, [&](int64_t i) { return document(i).end; });
       d < count;
       ++d) {
    const TokenRange whole = document(d);
    if (whole.begin >= within.end) return;
    const TokenRange part{std::max(whole.begin, within.begin), std::min(whole.end, within.end)};
    if (part.size() > 0) visit(d, part);
  }
}

void Corpus::read(int64_t begin, std::span<int64_t> out) const {
  if (const auto* const text = std::get_if<ByteText>(&tokens_)) {
    std::copy_n(text->bytes.begin() + begin, out.size(), out.begin());
  } else {
    std::get<IndexedFile>(tokens_).read(begin, out);
  }
}

void Corpus::read_mask(int64_t begin, std::span<uint8_t> out) const {
  if (const auto* const file = std::get_if<IndexedFile>(&tokens_)) {
    file->read_mask(begin, out);
  } else {
    std::fill(out.begin(), out.end(), uint8_t{1});
  }
}

std::string Corpus::place_of(int64_t at) const {
  const int64_t d =
      first_ending_behind(num_documents(), at, [&](int64_t i) { return document(i).end; });
  const auto* const text = std::get_if<ByteText>(&tokens_);
  const std::string file = text != nullptr && static_cast<size_t>(d) < text->names.size()
                               ? fmt::format(" ({})", text->names[static_cast<size_t>(d)])
                               : "";
  return fmt::format("document {}{}, token {}", d, file, at - document(d).begin);
}

std::string Corpus::fingerprint() const {
  const auto* const text = std::get_if<ByteText>(&tokens_);
  if (text == nullptr) return std::get<IndexedFile>(tokens_).fingerprint();
  Sha256 hash;
  hash.add(std::as_bytes(std::span(text->documents)));
  hash.add(std::as_bytes(std::span(text->bytes)));
  return hash.hex();
}

}  // namespace lethe
