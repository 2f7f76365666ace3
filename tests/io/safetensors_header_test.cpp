#include "lethe/io/safetensors_header.h"

#include <cstring>
#include <optional>
#include <set>

#include <gtest/gtest.h>

#include "lethe/base/error.h"

namespace lethe {
namespace {

// A file image: the length of `json`, `json` itself, then `data_bytes` zeros.
std::string image(const std::string& json, size_t data_bytes, std::optional<uint64_t> length = {}) {
  const uint64_t n = length.value_or(json.size());
  std::string out(8, '\0');
  std::memcpy(out.data(), &n, 8);
  return out + json + std::string(data_bytes, '\0');
}

SafetensorsHeader parse(const std::string& file) {
  return parse_safetensors_header(std::as_bytes(std::span(file)), file.size(), "x.safetensors");
}

std::string error_of(const std::string& file) {
  try {
    (void)parse(file);
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "accepted";
}

std::string entry(const std::string& name,
                  const std::string& dtype,
                  const std::string& shape,
                  const std::string& at) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + at + "}";
}

std::string one(const std::string& dtype, const std::string& shape, const std::string& at) {
  return "{" + entry("a", dtype, shape, at) + "}";
}

struct Malformed {
  const char* what;
  std::string file;
  std::string start;  // "x.safetensors: byte OFFSET [RULE]: "
};

std::string at(int offset, const std::string& rule) {
  return "x.safetensors: byte " + std::to_string(offset) + " [" + rule + "]: ";
}

std::vector<Malformed> frame_cases() {
  return {
      {"empty file", "", at(0, "E-ST-SHORT")},
      {"seven bytes", std::string(7, '\0'), at(0, "E-ST-SHORT")},
      {"length above the limit", image("{}", 0, 100'000'001), at(0, "E-ST-LIMIT")},
      {"length all ones", image("{}", 0, UINT64_MAX), at(0, "E-ST-LIMIT")},
      {"length beyond the end", image("{}", 0, 3), at(0, "E-ST-HEADER")},
      {"no header", image("", 0), at(8, "E-ST-START")},
      {"array", image("[]", 0), at(8, "E-ST-START")},
      {"leading space", image(" {}", 0), at(8, "E-ST-START")},
      {"byte order mark", image("\xEF\xBB\xBF{}", 0), at(8, "E-ST-START")},
      {"lone continuation byte", image("{\"\x80\":1}", 0), at(10, "E-ST-UTF8")},
      {"overlong form", image("{\"\xC0\xAF\":1}", 0), at(10, "E-ST-UTF8")},
      {"overlong three bytes", image("{\"\xE0\x80\xAF\":1}", 0), at(10, "E-ST-UTF8")},
      {"surrogate", image("{\"\xED\xA0\x80\":1}", 0), at(10, "E-ST-UTF8")},
      {"beyond unicode", image("{\"\xF4\x90\x80\x80\":1}", 0), at(10, "E-ST-UTF8")},
      {"cut sequence", image("{\"\xE2\x82", 0), at(10, "E-ST-UTF8")},
      {"unclosed object", image("{", 0), at(9, "E-ST-JSON")},
      {"text after the object", image("{} x", 0), at(11, "E-ST-JSON")},
      {"zero byte after the object", image(std::string("{}\0garbage", 10), 0), at(10, "E-ST-JSON")},
      {"trailing comma", image("{\"a\":{},}", 0), "x.safetensors: byte "},
      {"lone surrogate escape", image("{\"\\ud800\":1}", 0), "x.safetensors: byte "},
      {"control character in a name", image("{\"a\nb\":1}", 0), at(11, "E-ST-JSON")},
  };
}

std::vector<Malformed> value_cases() {
  return {
      {"tensor is a number", image("{\"a\":1}", 0), at(14, "E-ST-VALUE")},
      {"tensor is null", image("{\"a\":null}", 0), at(16, "E-ST-VALUE")},
      {"tensor is true", image("{\"a\":true}", 0), at(16, "E-ST-VALUE")},
      {"tensor is an array", image("{\"a\":[]}", 0), at(13, "E-ST-VALUE")},
      {"tensor is a string", image("{\"a\":\"b\"}", 0), at(15, "E-ST-VALUE")},
      {"dtype is a number", image("{\"a\":{\"dtype\":4}}", 0), at(23, "E-ST-VALUE")},
      {"shape is an object", image("{\"a\":{\"shape\":{}}}", 0), at(22, "E-ST-VALUE")},
      {"nested shape", image("{\"a\":{\"shape\":[[1]]}}", 0), at(23, "E-ST-VALUE")},
      {"string in a shape", image("{\"a\":{\"shape\":[\"1\"]}}", 0), at(25, "E-ST-VALUE")},
      {"negative size", image("{\"a\":{\"shape\":[-1]}}", 0), at(25, "E-ST-NUMBER")},
      {"fraction", image("{\"a\":{\"shape\":[1.5]}}", 0), at(26, "E-ST-NUMBER")},
      {"size of 2^64",
       image("{\"a\":{\"shape\":[18446744073709551616]}}", 0),
       at(43, "E-ST-NUMBER")},
      {"three offsets", image("{\"a\":{\"data_offsets\":[0,0,0]}}", 0), at(35, "E-ST-OFFSETS")},
      {"one offset", image("{\"a\":{\"data_offsets\":[0]}}", 0), at(31, "E-ST-OFFSETS")},
      {"unknown key", image("{\"a\":{\"strides\":[1]}}", 0), at(22, "E-ST-KEY")},
      {"empty entry", image("{\"a\":{}}", 0), at(14, "E-ST-KEY")},
      {"no shape",
       image("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4),
       at(48, "E-ST-KEY")},
      {"key twice",
       image("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 0),
       at(34, "E-ST-DUPLICATE")},
      {"name twice",
       image("{" + entry("a", "U8", "[1]", "[0,1]") + "," + entry("a", "U8", "[1]", "[1,2]") + "}",
             2),
       at(63, "E-ST-DUPLICATE")},
      {"metadata twice",
       image("{\"__metadata__\":{},\"__metadata__\":{}}", 0),
       at(40, "E-ST-DUPLICATE")},
      {"metadata key twice",
       image("{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", 0),
       at(34, "E-ST-DUPLICATE")},
      {"metadata value is a number",
       image("{\"__metadata__\":{\"a\":1}}", 0),
       at(30, "E-ST-METADATA")},
      {"metadata value is an object",
       image("{\"__metadata__\":{\"a\":{}}}", 0),
       at(29, "E-ST-METADATA")},
      {"metadata is a string", image("{\"__metadata__\":\"a\"}", 0), at(26, "E-ST-METADATA")},
      {"metadata is null", image("{\"__metadata__\":null}", 0), at(27, "E-ST-METADATA")},
  };
}

std::vector<Malformed> range_cases() {
  const std::string big = "[4294967296,4294967296]";  // 2^64 elements
  return {
      {"elements overflow", image(one("U8", big, "[0,0]"), 0), "E-ST-OVERFLOW"},
      {"bits overflow", image(one("F64", "[2305843009213693952]", "[0,0]"), 0), "E-ST-OVERFLOW"},
      {"overflow before a zero",
       image(one("U8", "[4294967296,4294967296,0]", "[0,0]"), 0),
       "E-ST-OVERFLOW"},
      {"size of 2^63 after a zero",
       image(one("U8", "[0,9223372036854775808]", "[0,0]"), 0),
       "E-ST-OVERFLOW"},
      {"half a byte", image(one("F4", "[3]", "[0,2]"), 2), "E-ST-NIBBLE"},
      {"end before begin", image(one("U8", "[1]", "[1,0]"), 1), "E-ST-OFFSETS"},
      {"too few bytes", image(one("F32", "[2]", "[0,4]"), 4), "E-ST-LENGTH"},
      {"too many bytes", image(one("F32", "[]", "[0,8]"), 8), "E-ST-LENGTH"},
      {"bytes for a zero size", image(one("F32", "[0]", "[0,4]"), 4), "E-ST-LENGTH"},
      {"hole at the front", image(one("U8", "[1]", "[1,2]"), 2), "E-ST-HOLE"},
      {"hole between",
       image("{" + entry("a", "U8", "[1]", "[0,1]") + "," + entry("b", "U8", "[1]", "[2,3]") + "}",
             3),
       "E-ST-HOLE"},
      {"overlap",
       image("{" + entry("a", "U8", "[2]", "[0,2]") + "," + entry("b", "U8", "[2]", "[1,3]") + "}",
             3),
       "E-ST-OVERLAP"},
      {"same range twice",
       image("{" + entry("a", "U8", "[2]", "[0,2]") + "," + entry("b", "U8", "[2]", "[0,2]") + "}",
             2),
       "E-ST-OVERLAP"},
      {"file ends early", image(one("F32", "[2]", "[0,8]"), 7), "E-ST-TRUNCATED"},
      {"file goes on", image(one("F32", "[2]", "[0,8]"), 9), "E-ST-TRAILING"},
      {"data without tensors", image("{}", 1), "E-ST-TRAILING"},
      {"offsets near 2^64",
       image(one("U8", "[1]", "[18446744073709551614,18446744073709551615]"), 1),
       "E-ST-HOLE"},
  };
}

TEST(SafetensorsHeader, EveryBrokenFrameIsRefusedWithItsRuleAndOffset) {
  for (const auto& c : frame_cases())
    EXPECT_EQ(error_of(c.file).substr(0, c.start.size()), c.start) << c.what;
}

TEST(SafetensorsHeader, EveryMisplacedValueIsRefusedWithItsRuleAndOffset) {
  for (const auto& c : value_cases())
    EXPECT_EQ(error_of(c.file).substr(0, c.start.size()), c.start) << c.what;
}

TEST(SafetensorsHeader, EveryImpossibleRangeIsRefusedWithItsRule) {
  for (const auto& c : range_cases())
    EXPECT_NE(error_of(c.file).find("[" + c.start + "]"), std::string::npos)
        << c.what << ": " << error_of(c.file);
}

TEST(SafetensorsHeader, OtherDtypesAreRefusedByName) {
  const std::vector<std::string> known{"BOOL",
                                       "F6_E2M3",
                                       "F6_E3M2",
                                       "F8_E5M2",
                                       "F8_E4M3FNUZ",
                                       "F8_E5M2FNUZ",
                                       "I16",
                                       "U16",
                                       "U32",
                                       "C64",
                                       "U64"};
  for (const auto& name : known) {
    const auto text = error_of(image(one(name, "[0]", "[0,0]"), 0));
    EXPECT_NE(text.find("[E-ST-DTYPE]"), std::string::npos) << text;
    EXPECT_NE(text.find("the unsupported '" + name + "'"), std::string::npos) << text;
  }
  for (const std::string name : {"f32", "", "F128"})
    EXPECT_NE(error_of(image(one(name, "[0]", "[0,0]"), 0)).find("the unknown '" + name + "'"),
              std::string::npos);
}

TEST(SafetensorsHeader, TruncationAnywhereIsRefused) {
  const std::string file = image("{" + entry("a", "F32", "[2]", "[0,8]") + "}", 8);
  ASSERT_EQ(error_of(file), "accepted");
  for (size_t n = 0; n < file.size(); ++n)
    EXPECT_NE(error_of(file.substr(0, n)), "accepted") << n << " bytes";
}

TEST(SafetensorsHeader, AllElevenDtypesAreReadWithTheirSizes) {
  const std::vector<std::pair<std::string, int>> bits{{"F4", 4},
                                                      {"U8", 8},
                                                      {"I8", 8},
                                                      {"F8_E4M3", 8},
                                                      {"F8_E8M0", 8},
                                                      {"F16", 16},
                                                      {"BF16", 16},
                                                      {"I32", 32},
                                                      {"F32", 32},
                                                      {"F64", 64},
                                                      {"I64", 64}};
  for (const auto& [name, width] : bits) {
    const auto bytes = static_cast<size_t>(6 * width / 8);
    const auto header =
        parse(image(one(name, "[2,3]", "[0," + std::to_string(bytes) + "]"), bytes));
    ASSERT_EQ(header.tensors.size(), 1u);
    EXPECT_EQ(dtype_name(header.tensors[0].dtype), name);
    EXPECT_EQ(dtype_bits(header.tensors[0].dtype), width);
    EXPECT_EQ(header.tensors[0].num_bytes, static_cast<int64_t>(bytes));
    EXPECT_EQ(header.tensors[0].shape, (std::vector<int64_t>{2, 3}));
  }
}

TEST(SafetensorsHeader, ScalarsEmptyTensorsAnyKeyOrderAndPaddingAreLegal) {
  const std::string json = "{\"b\":{\"data_offsets\":[4,4],\"shape\":[3,0],\"dtype\":\"F64\"}," +
                           entry("s", "F32", "[]", "[0,4]") +
                           ",\"__metadata__\":{\"k\":\"\\u00e9\"}}   ";
  const auto header = parse(image(json, 4));
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_EQ(header.tensors[0].name, "s");
  EXPECT_EQ(header.tensors[0].begin, header.data_begin);
  EXPECT_EQ(header.tensors[0].shape, std::vector<int64_t>{});
  EXPECT_EQ(header.tensors[1].shape, (std::vector<int64_t>{3, 0}));
  EXPECT_EQ(header.tensors[1].num_bytes, 0);
  EXPECT_EQ(header.metadata.at("k"), "\xC3\xA9");
  EXPECT_EQ(header.data_begin, static_cast<int64_t>(8 + json.size()));
}

TEST(SafetensorsHeader, TheEmptyFileHasAnEightByteHeader) {
  const auto header = lay_out_safetensors({}, {}, "x");
  EXPECT_EQ(safetensors_header_bytes(header, "x"), std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
}

TEST(SafetensorsHeader, TensorsAreLaidOutByRankThenName) {
  std::vector<StoredTensor> tensors;
  for (const auto dtype :
       {StoredDtype::F4, StoredDtype::U8, StoredDtype::BF16, StoredDtype::F32, StoredDtype::I64})
    for (const std::string name : {"z", "a"})
      tensors.push_back({name + std::string(dtype_name(dtype)), dtype, {2}, 0, 0});
  const auto header = lay_out_safetensors(tensors, {}, "x");
  std::vector<std::string> names;
  for (const auto& tensor : header.tensors) {
    names.push_back(tensor.name);
    EXPECT_EQ(tensor.begin % std::max(1, dtype_bits(tensor.dtype) / 8), 0) << tensor.name;
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{
                "aI64", "zI64", "aF32", "zF32", "aBF16", "zBF16", "aU8", "zU8", "aF4", "zF4"}));
  EXPECT_EQ(header.data_begin % 8, 0);
}

TEST(SafetensorsHeader, WritingRefusesBadNamesAndSizes) {
  const auto rule_of = [](std::vector<StoredTensor> tensors,
                          std::map<std::string, std::string> metadata = {}) {
    try {
      (void)lay_out_safetensors(std::move(tensors), std::move(metadata), "x");
    } catch (const CheckpointError& error) {
      const std::string text = error.what();
      return text.substr(text.find('['), text.find(']') - text.find('[') + 1);
    }
    return std::string("accepted");
  };
  const auto f32 = [](const std::string& name, std::vector<int64_t> shape) {
    return StoredTensor{name, StoredDtype::F32, std::move(shape), 0, 0};
  };
  const int64_t large = INT64_C(1) << 57;
  EXPECT_EQ(rule_of({f32("a", {1}), {"a", StoredDtype::U8, {1}, 0, 0}}), "[E-ST-DUPLICATE]");
  EXPECT_EQ(rule_of({f32("__metadata__", {1})}), "[E-ST-NAME]");
  EXPECT_EQ(rule_of({f32("\xFF", {1})}), "[E-ST-UTF8]");
  EXPECT_EQ(rule_of({}, {{"k", "\xFF"}}), "[E-ST-UTF8]");
  EXPECT_EQ(rule_of({f32("a", {-1})}), "[E-ST-OVERFLOW]");
  EXPECT_EQ(rule_of({f32("a", {large * 8})}), "[E-ST-OVERFLOW]");
  EXPECT_EQ(rule_of({{"a", StoredDtype::F4, {3}, 0, 0}}), "[E-ST-NIBBLE]");
  EXPECT_EQ(rule_of({f32("a\"\\\n", {0}), f32("", {})}), "accepted");
}

}  // namespace
}  // namespace lethe
