// Token files for tests/python/indexed_test.py, as text with one document per line:
//   indexed_tool read NAME           prints "DTYPE", then the ids; "!ID" is masked
//   indexed_tool write NAME DTYPE    writes what it reads from standard input in that form
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "lethe/base/error.h"
#include "lethe/data/indexed_file.h"
#include "lethe/data/indexed_writer.h"
#include "lethe/io/atomic_file.h"

namespace {

void print(const std::string& name) {
  const lethe::IndexedFile file(name);
  std::cout << lethe::dtype_name(file.layout().dtype()) << '\n';
  for (int64_t d = 0; d < file.layout().num_documents(); ++d) {
    const lethe::TokenRange range = file.document(d);
    std::vector<int64_t> ids(static_cast<size_t>(range.size()));
    std::vector<uint8_t> mask(ids.size());
    file.read(range.begin, ids);
    file.read_mask(range.begin, mask);
    for (size_t i = 0; i < ids.size(); ++i)
      std::cout << (i == 0 ? "" : " ") << (mask[i] != 0 ? "" : "!") << ids[i];
    std::cout << '\n';
  }
}

lethe::TokenDtype dtype_of(const std::string& name) {
  for (const auto dtype : {lethe::TokenDtype::U8, lethe::TokenDtype::U16, lethe::TokenDtype::I32})
    if (lethe::dtype_name(dtype) == name) return dtype;
  lethe::fail<lethe::DataError>("dtype: must be uint8, uint16 or int32, got '{}'; correct it",
                                name);
}

void write(const std::string& name, const std::string& dtype) {
  lethe::IndexedWriter writer({.name = name, .dtype = dtype_of(dtype), .with_mask = true});
  bool has_masked = false;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      const bool counted = word[0] != '!';
      has_masked |= !counted;
      writer.append(std::vector<int32_t>{std::stoi(word.substr(counted ? 0 : 1))}, counted);
    }
    writer.end_document();
  }
  for (const auto& rename : writer.finish(has_masked))
    lethe::rename_durably(rename.from, rename.to);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 3 && std::string(argv[1]) == "read") {
      print(argv[2]);
    } else if (argc == 4 && std::string(argv[1]) == "write") {
      write(argv[2], argv[3]);
    } else {
      return lethe::exit_code::kUsage;
    }
  } catch (const lethe::Error& error) {
    std::cerr << error.what() << '\n';
    return error.code();
  }
  return lethe::exit_code::kOk;
}
