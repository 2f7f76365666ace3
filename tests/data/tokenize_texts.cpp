// Texts from standard input to ids on standard output, for tests/python/tokenizer_test.py.
//   tokenize_texts TOKENIZER.json
// Input:  per text a uint32 (little endian) length in bytes, then the bytes.
// Output: per text a uint32 count, then int32 ids. A text that does not come back from decode()
// ends the program with code 1.
#include <cstdint>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "lethe/data/tokenizer.h"

namespace {

bool read_text(std::string& text) {
  uint32_t size = 0;
  if (!std::cin.read(reinterpret_cast<char*>(&size), sizeof(size))) return false;
  text.resize(size);
  return static_cast<bool>(std::cin.read(text.data(), size));
}

void write_ids(const std::vector<int32_t>& ids) {
  const auto count = static_cast<uint32_t>(ids.size());
  std::cout.write(reinterpret_cast<const char*>(&count), sizeof(count));
  std::cout.write(reinterpret_cast<const char*>(ids.data()),
                  static_cast<std::streamsize>(ids.size() * sizeof(int32_t)));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: tokenize_texts TOKENIZER.json\n";
    return 2;
  }
  try {
    const auto tokenizer = lethe::Tokenizer::from_file(argv[1]);
    std::string text;
    for (int64_t number = 0; read_text(text); ++number) {
      std::vector<int32_t> ids;
      tokenizer.encode(text, ids);
      if (tokenizer.decode(ids) != text) {
        std::cerr << "text " << number << " does not come back from its tokens\n";
        return 1;
      }
      write_ids(ids);
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
