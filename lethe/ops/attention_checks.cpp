#include <algorithm>
#include <atomic>
#include <cmath>
#include <span>

#include "lethe/base/error.h"
#include "lethe/core/describe.h"
#include "lethe/ops/attention_keys.h"
#include "lethe/ops/fused.h"
#include "lethe/ops/implementation.h"
#include "lethe/ops/packed_row.h"

namespace lethe::ops {
namespace {

void check_slots(const char* op,
                 const AttentionInputs& inputs,
                 const Documents& documents,
                 int64_t ratio) {
  const auto& slots = inputs.slots;
  const auto& indices = inputs.indices;
  LETHE_CHECK(ShapeError,
              slots.has_value() == (ratio > 0),
              "{}: slots must be given exactly for ratio > 0, got ratio {} and slots {}; check the "
              "layer's ratio",
              op,
              ratio,
              slots ? shape_text(*slots) : "none");
  LETHE_CHECK(ShapeError, slots || !indices, "{}: indices need slots, got ratio 0; drop them", op);
  if (!slots) return;
  check_same_dtype(op, "slots", *slots, inputs.q);
  check_sizes(op, "slots", "[C,c]", *slots, {total_slots(documents, ratio), inputs.q.size(2)});
  if (!indices) return;
  LETHE_CHECK(DtypeError,
              indices->scalar_type() == at::kInt,
              "{}: indices must be int32, got {}; pass those of lightning_indexer",
              op,
              dtype_text(*indices));
  LETHE_CHECK(ShapeError,
              indices->dim() == 2 && indices->size(0) == inputs.q.size(0),
              "{}: indices must be [T,K] with T = {}, got {}; pass those of the same row",
              op,
              inputs.q.size(0),
              shape_text(*indices));
}

/// The slots that a query sees.
struct SlotRange {
  int64_t begin, end;
};

std::vector<SlotRange> visible_ranges(const Documents& documents, int64_t ratio) {
  const std::vector<int32_t> cu_slots = documents.cu_slots(ratio);
  std::vector<SlotRange> ranges;
  ranges.reserve(static_cast<size_t>(documents.tokens()));
  for (int64_t d = 0; d < documents.count(); ++d)
    for (int64_t p = 0; p < documents.length(d); ++p) {
      const int64_t first = cu_slots[static_cast<size_t>(d)];
      ranges.push_back({first, first + (p + 1) / ratio});
    }
  return ranges;
}

bool is_bad(int32_t id, const SlotRange& range) {
  return id != -1 &&
         static_cast<uint64_t>(id - range.begin) >= static_cast<uint64_t>(range.end - range.begin);
}

bool any_bad(std::span<const int32_t> row, const SlotRange& range) {
  bool bad = false;
  for (const int32_t id : row) bad |= is_bad(id, range);
  return bad;
}

/// An index that stands twice in the row, or -1.
int32_t duplicate(std::span<const int32_t> row) {
  std::vector<int32_t> sorted(row.begin(), row.end());
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 1; i < sorted.size(); ++i)
    if (sorted[i] >= 0 && sorted[i] == sorted[i - 1]) return sorted[i];
  return -1;
}

[[noreturn]] void refuse_row(const char* op,
                             int64_t token,
                             std::span<const int32_t> row,
                             const SlotRange& range) {
  for (size_t column = 0; column < row.size(); ++column)
    if (is_bad(row[column], range))
      fail<ShapeError>(
          "{}: indices[{},{}] must be -1 or a slot visible to its query, in [{},{}), got {}; "
          "select with the same cu_seqlens and ratio",
          op,
          token,
          column,
          range.begin,
          range.end,
          row[column]);
  fail<ShapeError>(
      "{}: indices[{}] must name each slot at most once, got {} twice; pass a selection without "
      "duplicates",
      op,
      token,
      duplicate(row));
}

}  // namespace

Documents check_attention(const char* op,
                          const AttentionInputs& inputs,
                          const AttentionRule& rule) {
  const at::Tensor& q = inputs.q;
  LETHE_CHECK(ShapeError,
              rule.window >= 1,
              "{}: window must be >= 1, got {}; set sliding_window",
              op,
              rule.window);
  LETHE_CHECK(ShapeError,
              rule.ratio == 0 || rule.ratio >= 2,
              "{}: ratio must be 0 or >= 2, got {}; read 1 as 0 when importing",
              op,
              rule.ratio);
  LETHE_CHECK(ShapeError,
              std::isfinite(rule.scale) && rule.scale > 0,
              "{}: scale must be finite and > 0, got {}; use head_dim^-0.5",
              op,
              rule.scale);
  check_real(op, "q", q);
  check_dims(op, "q", "[T,H,c]", q, 3);
  check_same_dtype(op, "kv", inputs.kv, q);
  check_sizes(op, "kv", "[T,c]", inputs.kv, {q.size(0), q.size(2)});
  check_same_dtype(op, "sink", inputs.sink, q);
  check_sizes(op, "sink", "[H]", inputs.sink, {q.size(1)});
  Documents documents = documents_of(op, inputs.cu_seqlens, q.size(0));
  check_slots(op, inputs, documents, rule.ratio);
  return documents;
}

void check_rotation(const char* op, const AttentionInputs& inputs, const AttentionOutput& output) {
  const auto &positions = output.positions, &inv_freq = output.inv_freq;
  LETHE_CHECK(ShapeError,
              positions.has_value() == inv_freq.has_value(),
              "{}: positions and inv_freq must be given together, got {} and {}; pass both to have "
              "o rotated back",
              op,
              positions ? shape_text(*positions) : "none",
              inv_freq ? shape_text(*inv_freq) : "none");
  if (!positions) return;
  check_sizes(op, "positions", "[T]", *positions, {inputs.q.size(0)});
  LETHE_CHECK(DtypeError,
              positions->scalar_type() == at::kLong && inv_freq->scalar_type() == at::kFloat,
              "{}: positions must be int64 and inv_freq float32, got {} and {}; pass those that "
              "rotated q and kv",
              op,
              dtype_text(*positions),
              dtype_text(*inv_freq));
  LETHE_CHECK(
      ShapeError,
      inv_freq->dim() == 1 && 2 * inv_freq->numel() <= inputs.q.size(2),
      "{}: inv_freq must be [rd/2] with rd <= c = {}, got {}; it has one entry per rotated pair",
      op,
      inputs.q.size(2),
      shape_text(*inv_freq));
}

void check_indices(const char* op,
                   const AttentionInputs& inputs,
                   const Documents& documents,
                   int64_t ratio) {
  if (!inputs.indices) return;
  const at::Tensor ids = inputs.indices->cpu().contiguous();
  const std::vector<SlotRange> ranges = visible_ranges(documents, ratio);
  const auto columns = static_cast<size_t>(ids.size(1));
  const auto row = [&, first = ids.const_data_ptr<int32_t>()](int64_t token) {
    return std::span<const int32_t>(first + static_cast<size_t>(token) * columns, columns);
  };
  std::atomic<int64_t> first_bad{ids.size(0)};
  constexpr int64_t kRowsPerTask = 64;
  const int64_t tasks = (ids.size(0) + kRowsPerTask - 1) / kRowsPerTask;
  aten_pool()(tasks, [&](int64_t task, int) {
    const int64_t end = std::min(ids.size(0), (task + 1) * kRowsPerTask);
    for (int64_t token = task * kRowsPerTask; token < end; ++token) {
      const bool bad = any_bad(row(token), ranges[static_cast<size_t>(token)]) ||
                       (checked_mode() && duplicate(row(token)) >= 0);
      if (!bad) continue;
      int64_t known = first_bad;
      while (token < known && !first_bad.compare_exchange_weak(known, token)) {
      }
      return;
    }
  });
  if (first_bad == ids.size(0)) return;
  refuse_row(op, first_bad, row(first_bad), ranges[static_cast<size_t>(first_bad)]);
}

}  // namespace lethe::ops
