#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "lethe/recompute/recompute.h"
#include "lethe/recompute/tensor_meta_impl.h"

namespace lethe {

class Region;
struct RegionRecord;

/// The memory of a Tape: which storage is which output of which region.
struct TapeState {
  struct OutputOf {
    std::shared_ptr<Region> region;
    size_t index;
  };

  /// The region output whose storage `t` has and whose values it still shows; none: nullopt.
  std::optional<OutputOf> find_output(const at::Tensor& t);

  void add(const std::shared_ptr<Region>& region);
  /// From now on what is saved of an output's storage becomes a reference to it.
  void register_outputs(const std::shared_ptr<Region>& region);
  /// The latest region of this name; nullptr: it never ran, or nothing refers to it any more.
  std::shared_ptr<Region> find(std::string_view name) const;
  /// The same; nullptr only where nothing refers to it any more, E6 where it never ran.
  std::shared_ptr<Region> needed(std::string_view name) const;
  /// The same; RecomputeError E6 where there is none.
  std::shared_ptr<Region> require(std::string_view name) const;

  /// Lets go of outputs whose storage is gone. A region that nothing else refers to frees its
  /// inputs.
  void sweep();

  struct Entry {
    OutputOf output;
    WeakStorage storage;
  };

  TapeOptions options;
  mutable std::mutex mutex;
  std::unordered_map<const c10::StorageImpl*, Entry> outputs;
  std::map<std::string, std::weak_ptr<Region>, std::less<>> by_name;
  std::vector<std::weak_ptr<Region>> regions;
  std::vector<std::shared_ptr<RegionRecord>> records;
  std::string event = "the start";
  at::Tensor last_random;
};

}  // namespace lethe
