#include "lethe/kernels/cpu/gate_grad.h"

#include "lethe/kernels/cpu/isa/gate_product.h"
#include "lethe/kernels/cpu/isa/gate_slopes.h"

namespace lethe::kernels::LETHE_ISA {
namespace {

constexpr int64_t kSliceTokens = 128;  // of one sum inside d_weight

// d_weight is cut into slices of columns, and where those are few, its tokens into parts with a
// sum each: by the shape only, so that the bits do not know the threads.
struct BackwardScratch {
  int64_t block;          // tokens whose logit gradients exist at a time
  int64_t stride;         // of their rows: rows of 64, 128 ... floats would share cache sets
  int64_t slice, slices;  // columns of d_weight that a task owns
  int64_t parts;
  int64_t weight, logits, sums, per_thread;

  explicit BackwardScratch(const GateBackward& a) {
    const GateShape& s = a.shape;
    const int64_t fit = (1 << 18) / s.experts / kSliceTokens * kSliceTokens;
    block = smaller(fit > kSliceTokens ? fit : kSliceTokens, 4096);
    stride = round_up(s.experts, 16) + 16;
    const int64_t columns = (1 << 14) / s.experts / 64 * 64;
    slice = columns < 64 ? 64 : smaller(columns, 512);
    slices = tasks_of(s.width, slice);
    parts = slices < 16 ? 16 / slices : 1;
    weight = a.d_x == nullptr ? 0 : round_up(s.width, kTileColumns) * s.experts;
    logits = smaller(block, s.tokens) * stride;
    sums = a.d_weight == nullptr ? 0 : round_up((parts - 1) * s.experts * s.width, 16);
    per_thread = a.d_weight == nullptr ? 0 : kSliceTokens * slice;
  }
};

/// One row of a matrix into the panels of its columns, zeros behind the last; `panel` floats apart.
void pack_row(const float* from, int64_t columns, float* to, int64_t panel) {
  for (int64_t first = 0; first < columns; first += kTileColumns, to += panel)
    for (int64_t i = 0; i < kTileColumns; i += kLanes) {
      const int64_t left = columns - first - i;
      store(to + i,
            left >= kLanes ? load(from + first + i)
                           : load_some(from + first + i, left > 0 ? left : 0));
    }
}

/// The weight [E,D] in panels of its columns.
void pack_weight(const GateBackward& a) {
  const GateShape& s = a.shape;
  a.parallel(tasks_of(s.width, kTileColumns), [&](int64_t task, int) {
    const int64_t column = task * kTileColumns, columns = smaller(kTileColumns, s.width - column);
    for (int64_t e = 0; e < s.experts; ++e)
      pack_row(a.weight + e * s.width + column,
               columns,
               a.scratch + (column * s.experts + e * kTileColumns),
               0);
  });
}

void logit_gradient_row(const GateBackward& a, int64_t token, float* row) {
  const GateShape& s = a.shape;
  const float* scores = a.scores + token * s.experts;
  for_vectors(s.experts, [&](int64_t e, int64_t count) {
    put(row + e,
        a.d_scores == nullptr ? Vec{} : get(a.d_scores + token * s.experts + e, count),
        count);
  });
  if (a.d_weights != nullptr)
    add_weight_gradient(s, scores, a.indices + token * s.k, a.d_weights + token * s.k, row);
  slope_row(s.score, scores, row, s.experts);
}

/// d_x = d_logits weight for the rows of a task. Panels in groups that stay in the first cache.
void x_gradient_rows(
    const GateBackward& a, const float* d_logits, int64_t stride, int64_t first, int64_t rows) {
  const int64_t width = a.shape.width, experts = a.shape.experts;
  const int64_t whole = width / kTileColumns * kTileColumns;
  const int64_t fit = (1 << 13) / (experts * kTileColumns);
  const int64_t group = (fit > 1 ? fit : 1) * kTileColumns;
  for (int64_t column = 0, columns = 0; column < width; column += columns) {
    columns = column < whole ? smaller(group, whole - column) : width - whole;
    for (int64_t row = 0; row < rows; row += kTileRows)
      put_product({experts, d_logits + row * stride, stride, 1, a.scratch + column * experts},
                  {a.d_x + (first + row) * width + column,
                   width,
                   smaller(kTileRows, rows - row),
                   columns,
                   false});
  }
}

struct TokenRange {
  int64_t first, count;
};

/// d_weight[:, begin:] = or += d_logits^T x over these tokens, in their order, for one slice of the
/// columns. d_logits is the row of the first token.
void add_weight_slice(const GateBackward& a,
                      const BackwardScratch& scratch,
                      const float* d_logits,
                      TokenRange tokens,
                      int64_t begin,
                      float* d_weight,
                      float* packed) {
  const int64_t width = a.shape.width, end = smaller(begin + scratch.slice, width);
  for (int64_t t = 0; t < tokens.count; t += kSliceTokens) {
    const int64_t depth = smaller(kSliceTokens, tokens.count - t);
    const float* x = a.x + (tokens.first + t) * width;
    for (int64_t k = 0; k < depth; ++k)
      pack_row(x + k * width + begin, end - begin, packed + k * kTileColumns, depth * kTileColumns);
    for (int64_t column = begin; column < end; column += kTileColumns)
      for (int64_t e = 0; e < a.shape.experts; e += kTileRows)
        put_product({depth,
                     d_logits + t * scratch.stride + e,
                     1,
                     scratch.stride,
                     packed + (column - begin) * depth,
                     e == 0 ? x + depth * width + column : nullptr,
                     width},
                    {d_weight + e * width + column,
                     width,
                     smaller(kTileRows, a.shape.experts - e),
                     smaller(kTileColumns, width - column),
                     true});
  }
}

/// The tokens of a block into the sums of d_weight: part 0 is d_weight itself, the others scratch.
void add_weight_block(const GateBackward& a,
                      const BackwardScratch& scratch,
                      TokenRange block,
                      const float* d_logits,
                      float* sums,
                      float* packed) {
  const int64_t size = a.shape.experts * a.shape.width;
  const int64_t step = round_up(tasks_of(block.count, scratch.parts), kSliceTokens);
  a.parallel(scratch.parts * scratch.slices, [&](int64_t task, int thread) {
    const int64_t part = task / scratch.slices, first = part * step;
    if (first >= block.count) return;
    add_weight_slice(a,
                     scratch,
                     d_logits + first * scratch.stride,
                     {block.first + first, smaller(step, block.count - first)},
                     task % scratch.slices * scratch.slice,
                     part == 0 ? a.d_weight : sums + (part - 1) * size,
                     packed + thread * scratch.per_thread);
  });
}

void clear(const Parallel& parallel, float* p, int64_t count) {
  parallel(tasks_of(count, kFloatsPerTask), [&](int64_t task, int) {
    const int64_t first = task * kFloatsPerTask;
    __builtin_memset(p + first, 0, sizeof(float) * smaller(kFloatsPerTask, count - first));
  });
}

void add_parts(const GateBackward& a, int64_t parts, const float* sums) {
  const int64_t size = a.shape.experts * a.shape.width;
  a.parallel(tasks_of(size, kFloatsPerTask), [&](int64_t task, int) {
    const int64_t first = task * kFloatsPerTask;
    for_vectors(smaller(kFloatsPerTask, size - first), [&](int64_t i, int64_t count) {
      Vec total = get(a.d_weight + first + i, count);
      for (int64_t part = 0; part + 1 < parts; ++part)
        total += get(sums + part * size + first + i, count);
      put(a.d_weight + first + i, total, count);
    });
  });
}

}  // namespace

int64_t gate_backward_scratch(const GateBackward& a) {
  const BackwardScratch scratch(a);
  return scratch.weight + scratch.logits + scratch.sums + a.parallel.threads * scratch.per_thread;
}

void gate_backward(const GateBackward& a) {
  const GateShape& s = a.shape;
  const BackwardScratch scratch(a);
  float *d_logits = a.scratch + scratch.weight, *sums = d_logits + scratch.logits,
        *packed = sums + scratch.sums;
  if (a.d_x != nullptr) pack_weight(a);
  if (a.d_weight != nullptr) {
    clear(a.parallel, a.d_weight, s.experts * s.width);
    clear(a.parallel, sums, scratch.sums);
  }
  for (int64_t begin = 0; begin < s.tokens; begin += scratch.block) {
    const int64_t count = smaller(scratch.block, s.tokens - begin);
    a.parallel(tasks_of(count, kTaskRows), [&](int64_t task, int) {
      const int64_t first = task * kTaskRows, rows = smaller(kTaskRows, count - first);
      float* d = d_logits + first * scratch.stride;
      for (int64_t row = 0; row < rows; ++row)
        logit_gradient_row(a, begin + first + row, d + row * scratch.stride);
      if (a.d_x != nullptr) x_gradient_rows(a, d, scratch.stride, begin + first, rows);
    });
    if (a.d_weight != nullptr) add_weight_block(a, scratch, {begin, count}, d_logits, sums, packed);
  }
  if (a.d_weight != nullptr) add_parts(a, scratch.parts, sums);
}

}  // namespace lethe::kernels::LETHE_ISA
