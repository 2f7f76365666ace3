#include "lethe/data/prepare.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "lethe/base/error.h"
#include "lethe/data/dataset_card.h"
#include "lethe/data/indexed_writer.h"
#include "lethe/data/input_stream.h"
#include "lethe/data/jsonl.h"
#include "lethe/data/prepare_outputs_impl.h"
#include "lethe/data/prepare_progress_impl.h"
#include "lethe/data/prepare_sources_impl.h"
#include "lethe/data/tokenizer.h"
#include "lethe/io/atomic_file.h"
#include "lethe/io/checksum.h"
#include "lethe/io/file_facts.h"

namespace lethe {
namespace {

namespace fs = std::filesystem;
using detail::PrepareState;
using detail::Source;

constexpr int64_t kReportBytes = 1 << 20;

// A big list of inputs makes a big progress file, which is then written less often.
constexpr int64_t kMarkPerProgressByte = 16;

constexpr std::string_view kBytes = "bytes";

// Working memory up to here is kept from one document to the next.
constexpr size_t kKeptTokens = size_t{1} << 22;

void remove_file(const std::string& path) {
  std::error_code error;
  fs::remove(path, error);
  LETHE_CHECK(DataError,
              !error,
              "{}: must be removable, got '{}'; check the permissions of its folder",
              path,
              error.message());
}

class Preparation {
 public:
  Preparation(const PrepareSettings& settings,
              const std::function<void(const PrepareProgress&)>& progress)
      : settings_((detail::check_settings(settings), settings)),
        progress_(progress),
        is_bytes_(settings.tokenizer == kBytes),
        tokenizer_(is_bytes_ ? Tokenizer::bytes() : Tokenizer::from_file(settings.tokenizer)),
        sources_(detail::find_sources(settings)) {
    detail::check_inputs_stay(settings, sources_.files);
    find_end_of_document();
    for (const Source& source : sources_.files) total_bytes_ += source.bytes;
  }

  PrepareReport run();

 private:
  [[nodiscard]] std::string file(std::string_view ending) const {
    return settings_.output + std::string(ending);
  }

  void find_end_of_document();
  [[nodiscard]] std::map<std::string, std::string> output_settings() const;
  void begin();
  [[nodiscard]] bool may_resume(const PrepareState& found,
                                const std::map<std::string, std::string>& wanted) const;
  [[nodiscard]] std::optional<PrepareState> load_progress() const;
  [[nodiscard]] const Source* changed_source(const PrepareState& found) const;

  [[nodiscard]] const Source& source() const {
    return sources_.files[static_cast<size_t>(state_.source)];
  }

  void read_source();
  void read_text_blocks(InputStream& in);
  void read_text(InputStream& in);
  void read_lines(InputStream& in, bool is_jsonl);
  void take_record(const JsonlRecord& record, const LinePlace& place);
  void take_document(std::string_view text, const LinePlace& place);
  void encode(std::string_view text, bool counted, const LinePlace& place);
  void end_document();

  void moved_to(const InputStream& in);
  void set_mark(const InputStream* in);
  void show();
  void tell(const IndexedMark& mark) const;

  void finish();
  [[nodiscard]] DatasetCard card() const;
  void publish();
  void remove_temporary_files() const;
  [[nodiscard]] PrepareReport report() const;

  const PrepareSettings& settings_;
  const std::function<void(const PrepareProgress&)>& progress_;
  bool is_bytes_;
  Tokenizer tokenizer_;
  detail::Sources sources_;
  std::vector<int32_t> end_tokens_;  // none or one
  int64_t total_bytes_ = 0;
  std::optional<detail::OutputLock> lock_;
  std::optional<IndexedWriter> writer_;
  PrepareState state_;
  int64_t resumed_at_ = 0;
  int64_t marked_bytes_ = 0;  // input at the last mark
  int64_t shown_bytes_ = 0;   // input at the last progress call
  int64_t progress_file_bytes_ = 0;
  std::vector<int32_t> tokens_;
};

void Preparation::find_end_of_document() {
  if (settings_.end_of_document.empty()) return;
  const auto token = tokenizer_.find(settings_.end_of_document);
  LETHE_CHECK(ConfigError,
              token.has_value(),
              "data prepare: the end-of-document token must be one of the tokenizer's, got '{}'; "
              "name another or none",
              settings_.end_of_document);
  end_tokens_ = {*token};
}

std::map<std::string, std::string> Preparation::output_settings() const {
  std::map<std::string, std::string> out = {
      {"the tokenizer", tokenizer_.fingerprint()},
      {"the end-of-document token", settings_.end_of_document},
      {"prompts are masked", settings_.mask_prompts ? "yes" : "no"}};
  for (size_t i = 0; i < sources_.files.size(); ++i) {
    const Source& source = sources_.files[i];
    out[detail::input_key(i)] = fmt::format(
        "{} ({} bytes, {})", source.path, source.bytes, detail::format_name(source.format));
  }
  return out;
}

std::optional<PrepareState> Preparation::load_progress() const {
  try {
    return detail::load_state(file(".progress"));
  } catch (const DataError&) {
    if (!settings_.overwrite) throw;
    return std::nullopt;
  }
}

// The first input whose bytes are no longer those that were read; nullptr: none. An input that was
// read in part is compared when its reading goes on, unless there is a way out to take here.
const Source* Preparation::changed_source(const PrepareState& found) const {
  for (size_t i = 0; i < found.done.size(); ++i)
    if (sha256_of_file(sources_.files[i].path) != found.done[i]) return &sources_.files[i];
  if (!settings_.overwrite || found.sha256.empty()) return nullptr;
  const Source& partial = sources_.files[static_cast<size_t>(found.source)];
  const InputStream in(partial.path, {.offset = found.offset, .line = found.line});
  return in.sha256() == found.sha256 ? nullptr : &partial;
}

bool Preparation::may_resume(const PrepareState& found,
                             const std::map<std::string, std::string>& wanted) const {
  const std::string differing = detail::differences(found.settings, wanted);
  // Before the first mark there is nothing to lose.
  LETHE_CHECK(DataError,
              settings_.overwrite || differing.empty() || found.input_bytes == 0,
              "{}: an unfinished preparation must go on with the same inputs and settings, got "
              "others ({}); restore them, or begin anew with --overwrite",
              file(".progress"),
              differing);
  if (!differing.empty()) return false;
  const Source* const changed = changed_source(found);
  LETHE_CHECK(DataError,
              settings_.overwrite || changed == nullptr,
              "{}: must be unchanged while its preparation goes on, got other bytes (SHA-256); "
              "restore the file, or begin anew with --overwrite",
              changed->path);
  return changed == nullptr;
}

void Preparation::begin() {
  const fs::path folder = fs::path(settings_.output).parent_path();
  ensure_writable_folder(folder.empty() ? fs::path(".") : folder);
  lock_.emplace(settings_.output);
  const IndexedTarget target{
      .name = settings_.output,
      .dtype = dtype_for_vocabulary(tokenizer_.vocab_size()),
      .with_mask =
          settings_.mask_prompts &&
          std::any_of(sources_.files.begin(), sources_.files.end(), [](const Source& source) {
            return source.format == InputFormat::Jsonl;
          })};
  auto wanted = output_settings();
  auto found = load_progress();
  const bool resumed = found && may_resume(*found, wanted);
  if (resumed) state_ = std::move(*found);
  resumed_at_ = marked_bytes_ = shown_bytes_ = state_.input_bytes;
  if (!state_.renames.empty()) return;
  detail::check_free(settings_);
  if (resumed) {
    writer_.emplace(target, state_.mark);
  } else {
    writer_.emplace(target);
    state_.settings = std::move(wanted);
    progress_file_bytes_ = detail::save_state(file(".progress"), state_);
  }
}

void Preparation::encode(std::string_view text, bool counted, const LinePlace& place) {
  if (tokens_.capacity() > kKeptTokens) tokens_ = {};
  tokens_.clear();
  try {
    tokenizer_.encode(text, tokens_);
  } catch (const DataError& error) {
    fail<DataError>(
        "{}: {}", place.line > 0 ? place.text() : std::string(place.file), error.what());
  }
  if (tokens_.empty()) return;
  state_.largest_id =
      std::max<int64_t>(state_.largest_id, *std::max_element(tokens_.begin(), tokens_.end()));
  writer_->append(tokens_, counted);
}

void Preparation::end_document() {
  if (!end_tokens_.empty()) {
    state_.largest_id = std::max<int64_t>(state_.largest_id, end_tokens_[0]);
    writer_->append(end_tokens_);
  }
  writer_->end_document();
}

void Preparation::take_document(std::string_view text, const LinePlace& place) {
  if (text.empty()) {
    ++state_.empty_documents;
    return;
  }
  encode(text, true, place);
  end_document();
}

void Preparation::take_record(const JsonlRecord& record, const LinePlace& place) {
  if (!record.has_prompt) return take_document(record.text, place);
  // Without a response nothing of it would count.
  if (record.text.empty() && (settings_.mask_prompts || record.prompt.empty())) {
    ++state_.empty_documents;
    return;
  }
  encode(record.prompt, !settings_.mask_prompts, place);
  encode(record.text, true, place);
  end_document();
}

// A byte is a token wherever the text is cut.
void Preparation::read_text_blocks(InputStream& in) {
  for (std::string_view block = in.next_block(); !block.empty(); block = in.next_block()) {
    encode(block, true, {.file = source().path, .line = 0});
    moved_to(in);
  }
  if (in.offset() == 0) {
    ++state_.empty_documents;
  } else {
    end_document();
  }
}

void Preparation::read_text(InputStream& in) {
  LETHE_CHECK(
      DataError,
      source().bytes <= settings_.max_document_bytes,
      "{}: a document must have at most {} bytes, since the tokenizer sees it as a whole, "
      "got a file of {}; prepare it as lines (--input-format lines), break it into several files, "
      "or raise --max-document-mb",
      source().path,
      settings_.max_document_bytes,
      source().bytes);
  std::string text;
  text.reserve(static_cast<size_t>(source().bytes));
  for (std::string_view block = in.next_block(); !block.empty(); block = in.next_block())
    text += block;
  take_document(text, {.file = source().path, .line = 0});
}

void Preparation::read_lines(InputStream& in, bool is_jsonl) {
  std::string_view line;
  LinePlace place{.file = source().path};
  for (;;) {
    place.offset = in.offset();
    place.line = in.line();
    if (!in.next_line(line, settings_.max_document_bytes)) return;
    if (line.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos) {
      ++state_.empty_documents;
    } else if (is_jsonl) {
      take_record(parse_jsonl_line(line, place), place);
    } else {
      take_document(line, place);
    }
    moved_to(in);
  }
}

void Preparation::read_source() {
  const Source& source = this->source();
  InputStream in(source.path, {.offset = state_.offset, .line = state_.line});
  LETHE_CHECK(DataError,
              state_.sha256.empty() || in.sha256() == state_.sha256,
              "{}: must be unchanged while its preparation goes on, got other bytes before byte {} "
              "(SHA-256); restore the file, or begin anew with --overwrite",
              source.path,
              state_.offset);
  if (source.format != InputFormat::Text) {
    read_lines(in, source.format == InputFormat::Jsonl);
  } else if (is_bytes_) {
    read_text_blocks(in);
  } else {
    read_text(in);
  }
  LETHE_CHECK(DataError,
              in.offset() == source.bytes,
              "{}: must keep its {} bytes while it is read, got {}; is another program writing it?",
              source.path,
              source.bytes,
              in.offset());
  state_.done.push_back(in.sha256());
  state_.input_bytes += in.offset() - state_.offset;
  ++state_.source;
  state_.offset = 0;
  state_.line = 1;
  state_.sha256.clear();
  set_mark(nullptr);
  show();
}

void Preparation::moved_to(const InputStream& in) {
  state_.input_bytes += in.offset() - state_.offset;
  state_.offset = in.offset();
  state_.line = in.line();
  set_mark(&in);
  show();
}

// in: the input in the middle of which the mark lies; nullptr between two.
void Preparation::set_mark(const InputStream* in) {
  const int64_t distance =
      std::max(settings_.mark_bytes, kMarkPerProgressByte * progress_file_bytes_);
  if (state_.input_bytes - marked_bytes_ < distance) return;
  if (in != nullptr) state_.sha256 = in->sha256();
  state_.mark = writer_->sync();
  progress_file_bytes_ = detail::save_state(file(".progress"), state_);
  marked_bytes_ = state_.input_bytes;
}

void Preparation::show() {
  if (!progress_ || state_.input_bytes - shown_bytes_ < kReportBytes) return;
  shown_bytes_ = state_.input_bytes;
  tell(writer_->mark());
}

void Preparation::tell(const IndexedMark& mark) const {
  progress_({.bytes_done = state_.input_bytes,
             .bytes_total = total_bytes_,
             .bytes_before = resumed_at_,
             .documents = mark.num_documents,
             .tokens = mark.num_tokens});
}

DatasetCard Preparation::card() const {
  DatasetCard card{.tokenizer = is_bytes_ ? std::string(kBytes) : "tokenizer.json",
                   .tokenizer_fingerprint = tokenizer_.fingerprint(),
                   .vocab_size = tokenizer_.vocab_size(),
                   .dtype = std::string(dtype_name(dtype_for_vocabulary(tokenizer_.vocab_size()))),
                   .documents = state_.mark.num_documents,
                   .empty_documents = state_.empty_documents,
                   .tokens = state_.mark.num_tokens,
                   .masked_tokens = state_.mark.masked_tokens,
                   .largest_id = state_.largest_id,
                   .input_format = std::string(detail::format_name(settings_.format)),
                   .end_of_document = settings_.end_of_document};
  for (size_t i = 0; i < sources_.files.size(); ++i)
    card.sources.push_back({sources_.files[i].path, sources_.files[i].bytes, state_.done[i]});
  return card;
}

void Preparation::finish() {
  state_.mark = writer_->sync();
  LETHE_CHECK(DataError,
              state_.mark.num_tokens > 0,
              "data prepare: the inputs must give at least one token, got {} files with {} empty "
              "documents; name others",
              sources_.files.size(),
              state_.empty_documents);
  auto renames = writer_->finish(state_.mark.masked_tokens > 0);
  const auto add_file = [&](std::string_view ending, std::string_view content) {
    const std::string target = file(ending);
    write_file_atomically(target + ".part", content);
    renames.insert(renames.end() - 1, {target + ".part", target});
  };
  if (!is_bytes_) add_file(".tokenizer.json", read_text_file(settings_.tokenizer));
  add_file(".json", card().to_json());
  state_.renames = std::move(renames);
  detail::save_state(file(".progress"), state_);
}

// What AtomicFile leaves behind when its process is killed.
void Preparation::remove_temporary_files() const {
  std::error_code ignored;  // they disturb nobody
  const fs::path name(settings_.output);
  const fs::path folder = name.has_parent_path() ? name.parent_path() : fs::path(".");
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    for (const char* ending : {".progress", ".json.part", ".tokenizer.json.part"})
      if (entry.path().filename().string().starts_with(name.filename().string() + ending + ".tmp-"))
        fs::remove(entry.path(), ignored);
}

// May be killed at any point and called again: what is renamed already has no source any more.
void Preparation::publish() {
  const auto replaced = [&](const std::string& target) {
    return std::any_of(state_.renames.begin(), state_.renames.end(), [&](const auto& rename) {
      return rename.to == target;
    });
  };
  // An old index must not describe new tokens, nor an old mask belong to them.
  if (file_exists(state_.renames.back().from)) {
    remove_file(file(".idx"));
    for (const char* ending : {".mask.idx", ".mask.bin", ".tokenizer.json"})
      if (!replaced(file(ending))) remove_file(file(ending));
  }
  for (const auto& rename : state_.renames)
    if (file_exists(rename.from)) rename_durably(rename.from, rename.to);
  writer_.reset();
  for (const char* ending : {".lengths.part", ".mask.bin.part"}) remove_file(file(ending));
  remove_temporary_files();
  remove_file(file(".progress"));
}

PrepareReport Preparation::report() const {
  PrepareReport report{.documents = state_.mark.num_documents,
                       .empty_documents = state_.empty_documents,
                       .tokens = state_.mark.num_tokens,
                       .masked_tokens = state_.mark.masked_tokens,
                       .largest_id = state_.largest_id,
                       .input_bytes = state_.input_bytes,
                       .resumed_at_bytes = resumed_at_,
                       .hidden_skipped = sources_.hidden_skipped,
                       .vocab_size = tokenizer_.vocab_size()};
  for (const auto& rename : state_.renames) report.files.push_back(rename.to);
  return report;
}

PrepareReport Preparation::run() {
  begin();
  if (state_.renames.empty()) {
    while (state_.source < std::ssize(sources_.files)) read_source();
    finish();
  }
  publish();
  if (progress_) tell(state_.mark);
  return report();
}

}  // namespace

PrepareReport prepare(const PrepareSettings& settings,
                      const std::function<void(const PrepareProgress&)>& progress) {
  return Preparation(settings, progress).run();
}

}  // namespace lethe
