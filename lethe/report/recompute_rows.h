#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

// What recompute leaves in the folder of a run, as JSON lines (spec 3 6.6, 7.3). Pure.
namespace lethe::report {

/// Calls whose results a region kept, and the time in forward that each of its replays saved.
struct KeptRow {
  std::string call;
  int64_t calls = 0, bytes = 0, forward_ns = 0;
};

/// One region of one step. Bytes are those at the end of forward.
struct RegionRow {
  std::string region;                         // "L3.mb0.sparse"
  int64_t slots = 0;                          // saved tensors that a replay brings back
  int64_t handles = 0;                        // saved references of later readers to its outputs
  int64_t forgettable = 0;                    // bytes that would live without the region
  int64_t released = 0;                       // of these: gone
  int64_t retained = 0;                       // of these: held by somebody else
  int64_t snapshot_bytes = 0;                 // random state for the replay
  std::vector<std::string> retained_outputs;  // "out0: shares the storage of an input"
  std::vector<std::string> consumers;         // nodes that save an output which stays: "attn.post"
  int64_t replays = 0, early_stops = 0, late_restores = 0, replay_ns = 0;
  std::vector<KeptRow> kept;
};

/// A line per region:
///   {"step":S, "region":"L3.mb0.sparse", "slots":N, "handles":N, "forgettable":B, "released":B,
///    "retained":B, "snapshot_bytes":B, "retained_outputs":[...], "consumers":[...], "replays":N,
///    "early_stops":N, "late_restores":N, "replay_ns":T,
///    "kept":[{"call":NAME, "calls":N, "bytes":B, "forward_ns":T}, ...]}
[[nodiscard]] std::string region_lines(int64_t step, std::span<const RegionRow> regions);

/// Blocks of one producer that look alike.
struct CensusRow {
  std::string layer;         // "L3", "MTP0"; empty: outside of layers
  std::string producer;      // node, "attn.q"; "batch"; empty: unknown
  std::string shape, dtype;  // "[4,8]", "float32"; empty: no tensor showed them
  std::string category;      // "activations", "temporaries"
  int64_t count = 0, bytes = 0;
};

/// What is resident at the end of a forward. The bytes of the rows sum to `live` less the other
/// three.
struct Census {
  std::vector<CensusRow> rows;
  int64_t live = 0, parameters = 0, gradients = 0, optimizer = 0;

  /// Of the rows.
  [[nodiscard]] int64_t total() const;
};

/// A line per row, null for what is empty, and a last one for the whole:
///   {"step":S, "layer":"L3", "producer":"attn.q", "shape":"[4,8]", "dtype":"float32",
///    "category":"activations", "count":N, "bytes":B}
///   {"step":S, "total":B, "live":B, "parameters":B, "gradients":B, "optimizer":B}
[[nodiscard]] std::string census_lines(int64_t step, const Census& census);

}  // namespace lethe::report
