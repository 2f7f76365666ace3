#include "lethe/kernels/cpu/gate.h"

#include "lethe/kernels/cpu/isa/gate_product.h"
#include "lethe/kernels/cpu/isa/gate_rows.h"
#include "lethe/kernels/cpu/isa/gate_select.h"

namespace lethe::kernels::LETHE_ISA {
namespace {

constexpr int64_t kDepth = 256;             // of a panel: 16 KiB of 16 columns
constexpr int64_t kWeightFloats = 1 << 16;  // half of a second cache

struct ForwardScratch {
  int64_t panels, padded;  // of the experts
  bool pack_x;             // the weight exceeds the second cache: x goes there instead
  int64_t group;           // rows that meet a block of the weight while it is in the first cache
  int64_t weight, logits, x, keys, best, per_thread;

  explicit ForwardScratch(const GateShape& s)
      : panels(tasks_of(s.experts, kTileColumns)),
        padded(round_up(s.experts, kLanes)),
        pack_x(panels * kTileColumns * s.width > kWeightFloats),
        group(pack_x ? kTaskRows : 4 * kTileRows),
        weight(panels * kTileColumns * s.width),
        logits(kTaskRows * padded),
        x(pack_x ? kTaskRows * kDepth : 0),
        keys(padded * kLanes),
        best(s.k * kLanes),
        per_thread(round_up(logits + x + keys + best, 16)) {}
};

/// The panel of a transposed matrix: column i of the panel is row i of `from`.
void pack_panel_transposed(
    const float* from, int64_t stride, int64_t depth, int64_t columns, float* panel) {
  for (int64_t k = 0; k < depth; ++k)
    for (int64_t i = 0; i < kTileColumns; ++i)
      panel[k * kTileColumns + i] = i < columns ? from[i * stride + k] : 0;
}

void pack_weight_transposed(const GateForward& a, int64_t panels) {
  const int64_t width = a.shape.width, blocks = tasks_of(width, kDepth);
  a.parallel(panels * blocks, [&](int64_t task, int) {
    const int64_t panel = task / blocks, begin = task % blocks * kDepth;
    const int64_t first = panel * kTileColumns;
    pack_panel_transposed(a.weight + first * width + begin,
                          width,
                          smaller(kDepth, width - begin),
                          smaller(kTileColumns, a.shape.experts - first),
                          a.scratch + (panel * width + begin) * kTileColumns);
  });
}

/// One block of the depth for `rows` rows that start at x: logits [rows, padded] = or += the
/// product.
void add_logits(const GateForward& a,
                const ForwardScratch& scratch,
                const float* x,
                int64_t begin,
                int64_t rows,
                float* logits,
                float* packed) {
  const int64_t width = a.shape.width, depth = smaller(kDepth, width - begin);
  const int64_t stride = scratch.pack_x ? depth : width;
  const float* left = scratch.pack_x ? packed : x + begin;
  if (scratch.pack_x)
    for (int64_t row = 0; row < rows; ++row)
      __builtin_memcpy(packed + row * depth, x + row * width + begin, sizeof(float) * depth);
  for (int64_t panel = 0; panel < scratch.panels; ++panel) {
    const int64_t first = panel * kTileColumns;
    for (int64_t row = 0; row < rows; row += kTileRows) {
      TileInput in{depth,
                   left + row * stride,
                   stride,
                   1,
                   a.scratch + (panel * width + begin) * kTileColumns};
      if (scratch.pack_x && panel < kTileRows) {  // a row of the next block of the depth
        in.ahead = x + (row + panel) * width + begin + depth;
        in.ahead_k = 1;
      } else if (panel == 0) {  // the same tile of the next group of rows
        in.ahead = x + (row + scratch.group) * width + begin * kTileRows;
        in.ahead_k = kTileRows;
      }
      put_product(in,
                  {logits + row * scratch.padded + first,
                   scratch.padded,
                   smaller(kTileRows, rows - row),
                   smaller(kTileColumns, scratch.padded - first),
                   begin > 0});
    }
  }
}

void choose(const GateForward& a,
            const ForwardScratch& scratch,
            const float* scores,
            int64_t first,
            int64_t tokens,
            int32_t* ints) {
  int32_t *keys = ints, *best = ints + scratch.keys;
  make_keys(scores, scratch.padded, tokens, a, keys);
  take_best(a.shape, keys, best);
  const int64_t k = a.shape.k;
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t j = 0; j < k; ++j) a.indices[(first + t) * k + j] = best[j * kLanes + t];
}

void forward_rows(const GateForward& a,
                  const ForwardScratch& scratch,
                  int64_t first,
                  int64_t rows,
                  float* local) {
  const GateShape& s = a.shape;
  float *logits = local, *packed = logits + scratch.logits;
  auto* ints = reinterpret_cast<int32_t*>(packed + scratch.x);
  for (int64_t row = 0; row < rows; row += scratch.group)
    for (int64_t begin = 0; begin < s.width; begin += kDepth)
      add_logits(a,
                 scratch,
                 a.x + (first + row) * s.width,
                 begin,
                 smaller(scratch.group, rows - row),
                 logits + row * scratch.padded,
                 packed);
  for (int64_t row = 0; row < rows; ++row) {
    float *scores = logits + row * scratch.padded, *out = a.scores + (first + row) * s.experts;
    score_row(s.score, scores, s.experts, scratch.padded);
    for_vectors(s.experts,
                [&](int64_t e, int64_t count) { put(out + e, get(scores + e, count), count); });
  }
  if (a.given == nullptr)
    for (int64_t row = 0; row < rows; row += kLanes)
      choose(a,
             scratch,
             logits + row * scratch.padded,
             first + row,
             smaller(kLanes, rows - row),
             ints);
  else
    __builtin_memcpy(a.indices + first * s.k, a.given + first * s.k, sizeof(int32_t) * rows * s.k);
  for (int64_t row = 0; row < rows; ++row)
    weight_row(s,
               logits + row * scratch.padded,
               a.indices + (first + row) * s.k,
               a.weights + (first + row) * s.k);
}

}  // namespace

int64_t gate_forward_scratch(const GateForward& a) {
  const ForwardScratch scratch(a.shape);
  return scratch.weight + a.parallel.threads * scratch.per_thread;
}

void gate_forward(const GateForward& a) {
  const ForwardScratch scratch(a.shape);
  pack_weight_transposed(a, scratch.panels);
  float* local = a.scratch + scratch.weight;
  a.parallel(tasks_of(a.shape.tokens, kTaskRows), [&](int64_t task, int thread) {
    const int64_t first = task * kTaskRows;
    forward_rows(a,
                 scratch,
                 first,
                 smaller(kTaskRows, a.shape.tokens - first),
                 local + thread * scratch.per_thread);
  });
}

}  // namespace lethe::kernels::LETHE_ISA
