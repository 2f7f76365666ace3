#include <iterator>
#include <unordered_set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lethe/base/error.h"
#include "lethe/io/safetensors_json_impl.h"
#include "lethe/io/utf8.h"

namespace lethe::detail {
namespace {

using json = nlohmann::json;

constexpr uint64_t kTextBegin = 8;  // the header follows its 8-byte length

// Counts what the lexer has read: the SAX events themselves carry no position.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, uint64_t* count) : at_(at), count_(count) {}

  reference operator*() const { return *at_; }

  CountingIterator& operator++() {
    ++at_;
    ++*count_;
    return *this;
  }

  CountingIterator operator++(int) {
    auto before = *this;
    ++*this;
    return before;
  }

  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }

  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  uint64_t* count_;
};

// Where in the one legal structure the parser stands:
//   {"__metadata__": {string: string}, name: {"dtype": string, "shape": [n...], "data_offsets": [b,
//   e]}}
enum class Place {
  Root,
  EntryValue,
  MetadataValue,
  Metadata,
  MetadataText,
  Entry,
  Dtype,
  Shape,
  ShapeItems,
  Offsets,
  OffsetItems
};

// nlohmann's SAX interface; each event is legal in few places and refused in all others.
class HeaderHandler final : public nlohmann::json_sax<json> {
 public:
  explicit HeaderHandler(const std::string& path) : path_(path) {}

  uint64_t read = 0;  // characters the lexer has taken
  HeaderJson result;

  bool null() override { return misplaced("null"); }

  bool boolean(bool) override { return misplaced("a boolean"); }

  bool number_integer(number_integer_t value) override { return bad_number(std::to_string(value)); }

  bool number_float(number_float_t, const string_t& text) override { return bad_number(text); }

  bool binary(binary_t&) override { return misplaced("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::ShapeItems) {
      entry_.shape.push_back(value);
    } else if (place_ == Place::OffsetItems) {
      if (offsets_ == 2)
        refuse("E-ST-OFFSETS", "data_offsets must be [begin, end], got a third number");
      (offsets_++ == 0 ? entry_.begin : entry_.end) = value;
    } else {
      misplaced("a number");
    }
    return true;
  }

  bool string(string_t& text) override {
    if (place_ == Place::MetadataText) {
      result.metadata.emplace(metadata_key_, text);
      place_ = Place::Metadata;
    } else if (place_ == Place::Dtype) {
      take_dtype(text);
      place_ = Place::Entry;
    } else {
      misplaced("a string");
    }
    return true;
  }

  bool key(string_t& name) override {
    if (place_ == Place::Root) {
      if (!names_.insert(name).second) refuse_duplicate("name", name);
      place_ = name == "__metadata__" ? Place::MetadataValue : Place::EntryValue;
      entry_ = HeaderEntry{.name = name, .shape = {}};
      seen_dtype_ = seen_shape_ = seen_offsets_ = false;
    } else if (place_ == Place::Metadata) {
      if (result.metadata.contains(name)) refuse_duplicate("metadata key", name);
      metadata_key_ = name;
      place_ = Place::MetadataText;
    } else {
      open_field(name);
    }
    return true;
  }

  bool start_object(size_t) override {
    if (!inside_ && place_ == Place::Root) {
      inside_ = true;
    } else if (place_ == Place::EntryValue) {
      place_ = Place::Entry;
    } else if (place_ == Place::MetadataValue) {
      place_ = Place::Metadata;
    } else {
      misplaced("an object");
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::Entry) {
      if (!seen_dtype_ || !seen_shape_ || !seen_offsets_)
        refuse("E-ST-KEY",
               fmt::format("tensor '{}' must have dtype, shape and data_offsets, got no {}",
                           entry_.name,
                           !seen_dtype_   ? "dtype"
                           : !seen_shape_ ? "shape"
                                          : "data_offsets"));
      entry_.offset = position();
      result.entries.push_back(std::move(entry_));
    }
    place_ = Place::Root;
    return true;
  }

  bool start_array(size_t) override {
    if (place_ == Place::Shape) {
      place_ = Place::ShapeItems;
    } else if (place_ == Place::Offsets) {
      place_ = Place::OffsetItems;
      offsets_ = 0;
    } else {
      misplaced("an array");
    }
    return true;
  }

  bool end_array() override {
    if (place_ == Place::OffsetItems && offsets_ != 2)
      refuse("E-ST-OFFSETS",
             fmt::format("data_offsets must be [begin, end], got {} numbers", offsets_));
    place_ = Place::Entry;
    return true;
  }

  bool parse_error(size_t at,
                   const std::string&,
                   const nlohmann::detail::exception& error) override {
    // The library's text repeats position and parts of the input before the reason proper.
    const std::string text = error.what();
    const size_t reason = text.find("syntax error");
    refuse_safetensors(path_,
                       kTextBegin + (at == 0 ? 0 : at - 1),
                       "E-ST-JSON",
                       fmt::format("the header must be JSON, got a {}",
                                   reason == std::string::npos ? text : text.substr(reason)));
  }

 private:
  [[nodiscard]] uint64_t position() const { return kTextBegin + (read == 0 ? 0 : read - 1); }

  [[noreturn]] void refuse(std::string_view rule, const std::string& text) const {
    refuse_safetensors(path_, position(), rule, text);
  }

  [[noreturn]] void refuse_duplicate(std::string_view what, const std::string& name) const {
    refuse("E-ST-DUPLICATE", fmt::format("each {} must occur once, got a second '{}'", what, name));
  }

  // Returns only in the type system: every caller is an event that must answer a bool.
  bool misplaced(std::string_view got) const {
    if (place_ == Place::MetadataText || place_ == Place::MetadataValue)
      refuse("E-ST-METADATA",
             fmt::format(
                 "__metadata__ must be an object of strings, got {}{}",
                 got,
                 place_ == Place::MetadataText ? " for '" + metadata_key_ + "'" : std::string()));
    refuse("E-ST-VALUE",
           fmt::format("tensor '{}': {} must be {}, got {}", entry_.name, where(), wanted(), got));
  }

  bool bad_number(const std::string& text) const {
    if (place_ != Place::ShapeItems && place_ != Place::OffsetItems)
      return misplaced("the number " + text);
    refuse(
        "E-ST-NUMBER",
        fmt::format(
            "tensor '{}': {} must hold integers in [0, 2^64), got {}", entry_.name, where(), text));
  }

  [[nodiscard]] std::string_view where() const {
    if (place_ == Place::Dtype) return "dtype";
    if (place_ == Place::Shape || place_ == Place::ShapeItems) return "shape";
    if (place_ == Place::Offsets || place_ == Place::OffsetItems) return "data_offsets";
    return "its value";
  }

  [[nodiscard]] std::string_view wanted() const {
    if (place_ == Place::Dtype) return "a string";
    if (place_ == Place::Shape || place_ == Place::Offsets) return "an array";
    if (place_ == Place::ShapeItems || place_ == Place::OffsetItems) return "an array of integers";
    return "an object";
  }

  void open_field(const std::string& name) {
    bool* seen = name == "dtype"          ? &seen_dtype_
                 : name == "shape"        ? &seen_shape_
                 : name == "data_offsets" ? &seen_offsets_
                                          : nullptr;
    if (seen == nullptr)
      refuse("E-ST-KEY",
             fmt::format("tensor '{}' must have dtype, shape and data_offsets only, got '{}'",
                         entry_.name,
                         name));
    if (*seen) refuse_duplicate("key of tensor '" + entry_.name + "'", name);
    *seen = true;
    place_ = seen == &seen_dtype_   ? Place::Dtype
             : seen == &seen_shape_ ? Place::Shape
                                    : Place::Offsets;
  }

  void take_dtype(const std::string& text) {
    const auto dtype = dtype_from_name(text);
    if (!dtype)
      refuse("E-ST-DTYPE",
             fmt::format("tensor '{}': dtype must be F64, F32, BF16, F16, F8_E4M3, F8_E8M0, I8, "
                         "U8, I32, I64 or F4, "
                         "got {}'{}'; convert the file",
                         entry_.name,
                         is_refused_dtype(text) ? "the unsupported " : "the unknown ",
                         text));
    entry_.dtype = *dtype;
  }

  const std::string& path_;
  Place place_ = Place::Root;
  bool inside_ = false;
  HeaderEntry entry_;
  bool seen_dtype_ = false, seen_shape_ = false, seen_offsets_ = false;
  int offsets_ = 0;
  std::string metadata_key_;
  std::unordered_set<std::string> names_;
};

}  // namespace

void refuse_safetensors(const std::string& path,
                        uint64_t offset,
                        std::string_view rule,
                        const std::string& text) {
  fail<CheckpointError>("{}: byte {} [{}]: {}", path, offset, rule, text);
}

HeaderJson parse_header_json(std::string_view text, const std::string& path) {
  if (text.empty() || text.front() != '{')
    refuse_safetensors(path,
                       kTextBegin,
                       "E-ST-START",
                       text.empty()
                           ? "the header must be a JSON object, got no bytes"
                           : fmt::format("the header must begin with '{{', got byte {:02X}",
                                         static_cast<unsigned char>(text.front())));
  if (const size_t bad = first_invalid_utf8(text); bad < text.size())
    refuse_safetensors(path,
                       kTextBegin + bad,
                       "E-ST-UTF8",
                       fmt::format("the header must be UTF-8, got byte {:02X}",
                                   static_cast<unsigned char>(text[bad])));
  // The JSON library takes a zero byte for the end of its input and would ignore what follows.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos)
    refuse_safetensors(
        path, kTextBegin + zero, "E-ST-JSON", "the header must be JSON, got a zero byte");
  HeaderHandler handler(path);
  json::sax_parse(CountingIterator(text.data(), &handler.read),
                  CountingIterator(text.data() + text.size(), &handler.read),
                  &handler);
  return std::move(handler.result);
}

}  // namespace lethe::detail
