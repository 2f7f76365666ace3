// Speed of data preparation and of reading, one thread:
//   bench_data [--benchmark_... flags]
// BM_prepare: `lethe data prepare` of 64 MiB, bytes of input per second of CPU time.
// BM_next: TrainingData::next() of one row of 4096 tokens out of a memory-mapped data set.
#include <filesystem>
#include <fstream>
#include <string>

#include <benchmark/benchmark.h>

#include "lethe/base/random.h"
#include "lethe/data/prepare.h"
#include "lethe/data/training_data.h"

namespace {

namespace fs = std::filesystem;

constexpr int64_t kInputBytes = 64 << 20;

const fs::path& folder() {
  static const fs::path path = fs::temp_directory_path() / "lethe-bench-data";
  return path;
}

// English-like lines of 20 to 120 letters; as JSONL each is a record.
std::string input(bool jsonl) {
  const fs::path path = folder() / (jsonl ? "in.jsonl" : "in.txt");
  if (fs::exists(path)) return path.string();
  fs::create_directories(folder());
  std::ofstream out(path, std::ios::binary);
  lethe::Random random(1);
  for (int64_t written = 0; written < kInputBytes;) {
    std::string line;
    for (uint64_t n = 20 + random.uniform_below(100); n > 0; --n)
      line +=
          n % 6 == 0 ? ' ' : static_cast<char>('a' + static_cast<int>(random.uniform_below(26)));
    line = jsonl ? "{\"text\": \"" + line + "\"}\n" : line + "\n";
    out << line;
    written += static_cast<int64_t>(line.size());
  }
  return path.string();
}

void BM_prepare(benchmark::State& state) {
  const bool jsonl = state.range(0) != 0;
  lethe::PrepareSettings settings;
  settings.inputs = {input(jsonl)};
  settings.output = (folder() / (jsonl ? "jsonl" : "text")).string();
  settings.overwrite = true;
  int64_t bytes = 0;
  for (auto _ : state) bytes += lethe::prepare(settings).input_bytes;
  state.SetBytesProcessed(bytes);
  state.SetLabel(jsonl ? "JSONL, a document a line" : "plain text, one document");
}

BENCHMARK(BM_prepare)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

void BM_next(benchmark::State& state) {
  lethe::PrepareSettings settings;
  settings.inputs = {input(true)};
  settings.output = (folder() / "read").string();
  settings.overwrite = true;
  lethe::prepare(settings);
  lethe::DataSettings data;
  data.parts = {{settings.output, 1}};
  data.seq_length = 4096;
  data.vocab_size = 256;
  lethe::TrainingData stream(data);
  for (auto _ : state) benchmark::DoNotOptimize(stream.next());
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()) * data.seq_length);
}

BENCHMARK(BM_next)->Unit(benchmark::kMicrosecond);

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  fs::remove_all(folder());
  return 0;
}
