// Speed of Tokenizer::encode() on whole files, one thread:
//   bench_tokenizer TOKENIZER.json FILE... [--benchmark_... flags]
// The word cache is warm, as in any run longer than a second: each file is encoded once before.
#include <cstdint>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "lethe/data/tokenizer.h"
#include "lethe/io/atomic_file.h"

namespace {

void encode(benchmark::State& state, const lethe::Tokenizer& tokenizer, const std::string& text) {
  std::vector<int32_t> ids;
  tokenizer.encode(text, ids);
  for (auto _ : state) {
    ids.clear();
    tokenizer.encode(text, ids);
    benchmark::DoNotOptimize(ids.data());
  }
  const auto rounds = static_cast<int64_t>(state.iterations());
  state.SetBytesProcessed(rounds * static_cast<int64_t>(text.size()));
  state.SetItemsProcessed(rounds * static_cast<int64_t>(ids.size()));
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc < 3) {
    std::cerr << "usage: bench_tokenizer TOKENIZER.json FILE... [--benchmark_filter=...]\n";
    return 2;
  }
  try {
    const auto tokenizer = lethe::Tokenizer::from_file(argv[1]);
    for (int i = 2; i < argc; ++i)
      benchmark::RegisterBenchmark(
          argv[i], [&tokenizer, text = lethe::read_text_file(argv[i])](benchmark::State& state) {
            encode(state, tokenizer, text);
          });
    benchmark::RunSpecifiedBenchmarks();
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
