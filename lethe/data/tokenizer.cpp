#include "lethe/data/tokenizer.h"

#include <algorithm>
#include <array>
#include <limits>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "lethe/base/error.h"
#include "lethe/data/added_tokens_impl.h"
#include "lethe/data/bpe_merge_impl.h"
#include "lethe/data/byte_level_impl.h"
#include "lethe/data/split_regex_impl.h"
#include "lethe/data/tokenizer_json_impl.h"
#include "lethe/io/atomic_file.h"
#include "lethe/io/checksum.h"
#include "lethe/io/utf8.h"

namespace lethe {
namespace {

constexpr int32_t kNumBytes = 256;

// The working memory of one call of encode().
struct Workspace {
  detail::RegexScratch regex;
  detail::MergeScratch merge;
  detail::WordCache cache;
};

std::string bytes_of_entry(const std::string& spelled) {
  return detail::bytes_of_letters(spelled).value_or(spelled);
}

[[noreturn]] void refuse_id(int32_t id, int64_t vocab_size) {
  fail<DataError>(
      "tokenizer [E-TOK-RANGE]: a token id must be a token's of this tokenizer, below {}, got {}; "
      "was the text made with another tokenizer?",
      vocab_size,
      id);
}

}  // namespace

class Tokenizer::Bpe {
 public:
  explicit Bpe(detail::TokenizerSpec spec);

  void encode(std::string_view text, std::vector<int32_t>& out) const;

  // Of an id in range; empty: no token.
  [[nodiscard]] std::string_view bytes_of(int32_t id) const {
    const auto i = static_cast<size_t>(id);
    return std::string_view(bytes_).substr(bytes_begin_[i], bytes_begin_[i + 1] - bytes_begin_[i]);
  }

  [[nodiscard]] int64_t vocab_size() const { return static_cast<int64_t>(bytes_begin_.size()) - 1; }

  [[nodiscard]] std::optional<int32_t> find(const std::string& token) const {
    const auto found = ids_.find(token);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  // One encode(): where it writes and what it works with.
  struct Call {
    std::vector<int32_t>& out;
    Workspace& work;
  };

  void lay_out_bytes(const std::vector<detail::AddedToken>& added);
  void cut_added(std::string_view text, size_t finder, Call& call) const;
  void cut_words(std::string_view text, size_t split, Call& call) const;
  void encode_word(std::string_view word, Call& call) const;
  [[nodiscard]] std::unique_ptr<Workspace> take_workspace() const;

  std::vector<detail::AddedTokenFinder> finders_;  // in the order in which they look at a text
  std::vector<detail::SplitRegex> splits_;
  std::array<int32_t, kNumBytes> byte_ids_{};
  detail::MergeTable merges_;
  std::unordered_map<std::string, int32_t> ids_;          // vocabulary as spelled, and added tokens
  std::unordered_map<std::string, int32_t> whole_words_;  // by their bytes; with ignore_merges
  std::string bytes_;                                     // of all tokens, by id
  std::vector<uint64_t> bytes_begin_;                     // [vocab_size + 1]
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Workspace>> idle_;  // guarded by mutex_
};

Tokenizer::Bpe::Bpe(detail::TokenizerSpec spec)
    : merges_(spec.merges), ids_(std::move(spec.vocab)) {
  for (const auto& split : spec.splits) splits_.emplace_back(split.expression, split.where);
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte)
    byte_ids_[byte] = ids_.at(detail::byte_letter(static_cast<uint8_t>(byte)));
  if (spec.ignore_merges)
    for (const auto& [spelled, id] : ids_)
      if (auto bytes = detail::bytes_of_letters(spelled)) whole_words_.emplace(*bytes, id);
  lay_out_bytes(spec.added);
  for (const bool normalized : {false, true}) {
    std::vector<detail::AddedToken> tokens;
    for (const auto& token : spec.added)
      if (token.normalized == normalized) tokens.push_back(token);
    if (!tokens.empty()) finders_.emplace_back(std::move(tokens));
  }
}

void Tokenizer::Bpe::lay_out_bytes(const std::vector<detail::AddedToken>& added) {
  int32_t largest = 0;
  std::unordered_map<int32_t, std::string> bytes;
  for (const auto& [spelled, id] : ids_) {
    largest = std::max(largest, id);
    bytes.emplace(id, bytes_of_entry(spelled));
  }
  for (const auto& token : added) {
    largest = std::max(largest, token.id);
    bytes.emplace(token.id, token.content);
    ids_.insert_or_assign(token.content, token.id);
  }
  bytes_begin_.push_back(0);
  for (int32_t id = 0; id <= largest; ++id) {
    if (const auto found = bytes.find(id); found != bytes.end()) bytes_ += found->second;
    bytes_begin_.push_back(bytes_.size());
  }
}

std::unique_ptr<Workspace> Tokenizer::Bpe::take_workspace() const {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return std::make_unique<Workspace>();
  auto work = std::move(idle_.back());
  idle_.pop_back();
  return work;
}

void Tokenizer::Bpe::encode(std::string_view text, std::vector<int32_t>& out) const {
  LETHE_CHECK(DataError,
              text.size() <= std::numeric_limits<int32_t>::max(),
              "tokenizer [E-TOK-LENGTH]: a text must have less than 2^31 bytes, got {}; split it",
              text.size());
  auto work = take_workspace();
  Call call{out, *work};
  while (!text.empty()) {
    const size_t valid = first_invalid_utf8(text);
    cut_added(text.substr(0, valid), 0, call);
    if (valid == text.size()) break;
    out.push_back(byte_ids_[static_cast<unsigned char>(text[valid])]);
    text.remove_prefix(valid + 1);
  }
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(work));
}

void Tokenizer::Bpe::cut_added(std::string_view text, size_t finder, Call& call) const {
  if (finder == finders_.size()) return cut_words(text, 0, call);
  size_t begin = 0;
  while (const auto match = finders_[finder].find(text, begin)) {
    cut_added(text.substr(begin, match->begin - begin), finder + 1, call);
    call.out.push_back(match->id);
    begin = match->end;
  }
  cut_added(text.substr(begin), finder + 1, call);
}

void Tokenizer::Bpe::cut_words(std::string_view text, size_t split, Call& call) const {
  if (text.empty()) return;
  if (split == splits_.size()) return encode_word(text, call);
  detail::RegexMatch match;
  size_t begin = 0;
  while (begin < text.size() && splits_[split].find(text, begin, call.work.regex, match)) {
    cut_words(text.substr(begin, match.begin - begin), split + 1, call);
    cut_words(text.substr(match.begin, match.end - match.begin), split + 1, call);
    begin = match.end;
  }
  cut_words(text.substr(begin), split + 1, call);
}

void Tokenizer::Bpe::encode_word(std::string_view word, Call& call) const {
  if (call.work.cache.find(word, call.out)) return;
  const size_t before = call.out.size();
  if (const auto whole =
          whole_words_.empty() ? whole_words_.end() : whole_words_.find(std::string(word));
      whole != whole_words_.end()) {
    call.out.push_back(whole->second);
  } else {
    detail::merge_word(word, byte_ids_, merges_, call.work.merge, call.out);
  }
  call.work.cache.keep(word, std::span(call.out).subspan(before));
}

Tokenizer::Tokenizer(std::shared_ptr<const Bpe> bpe, std::string fingerprint)
    : bpe_(std::move(bpe)), fingerprint_(std::move(fingerprint)) {}

Tokenizer Tokenizer::bytes() {
  return {nullptr, "bytes"};
}

Tokenizer Tokenizer::from_file(const std::filesystem::path& path) {
  return from_json(read_text_file(path), path.string());
}

Tokenizer Tokenizer::from_json(std::string_view json, const std::string& name) {
  auto bpe = std::make_shared<const Bpe>(detail::parse_tokenizer_json(json, name));
  return {std::move(bpe), sha256_hex(std::as_bytes(std::span(json)))};
}

void Tokenizer::encode(std::string_view text, std::vector<int32_t>& out) const {
  if (bpe_) return bpe_->encode(text, out);
  for (const char byte : text) out.push_back(static_cast<unsigned char>(byte));
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) text += token_bytes(id);
  return text;
}

int64_t Tokenizer::vocab_size() const {
  return bpe_ ? bpe_->vocab_size() : kNumBytes;
}

std::string Tokenizer::token_bytes(int32_t id) const {
  if (id < 0 || id >= vocab_size()) refuse_id(id, vocab_size());
  if (!bpe_) return {static_cast<char>(id)};
  const std::string_view bytes = bpe_->bytes_of(id);
  if (bytes.empty()) refuse_id(id, vocab_size());
  return std::string(bytes);
}

std::optional<int32_t> Tokenizer::find(std::string_view token) const {
  if (bpe_) return bpe_->find(std::string(token));
  if (token.size() != 1) return std::nullopt;
  return static_cast<unsigned char>(token[0]);
}

const std::string& Tokenizer::fingerprint() const {
  return fingerprint_;
}

}  // namespace lethe
