#include "lethe/kernels/cpu/compressor.h"

#include "lethe/kernels/cpu/isa/norm_row.h"

namespace lethe::kernels::LETHE_ISA {
namespace {

// Rows of one softmax that are pooled together, as offsets into kv and gate, and into ape.
constexpr int64_t kBlockRows = 8;

struct Block {
  int64_t rows;
  int64_t token[kBlockRows], ape[kBlockRows];
};

LETHE_INLINE int64_t stride_of(const CompressorInputs& in) {
  return in.overlap ? 2 * in.width : in.width;
}

// The document of a slot: the last one whose slots begin at or before it.
LETHE_INLINE int64_t document_of(const CompressorInputs& in, int64_t slot) {
  int64_t low = 0, high = in.documents;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (in.cu_slots[middle] <= slot ? low : high) = middle;
  }
  return low;
}

// f(block) for the rows of a slot's window, and before them, where windows overlap, the first half
// of the channels of the window before.
template <class F>
LETHE_INLINE void for_blocks(const CompressorInputs& in, int64_t slot, F&& f) {
  const int64_t document = document_of(in, slot), index = slot - in.cu_slots[document];
  const int64_t stride = stride_of(in), begin = in.cu_seqlens[document] + index * in.ratio;
  Block block{};
  const auto add = [&](int64_t t, int64_t token, int64_t channel) {
    block.token[block.rows] = token * stride + channel;
    block.ape[block.rows++] = t * stride + channel;
    if (block.rows < kBlockRows) return;
    f(block);
    block.rows = 0;
  };
  if (in.overlap && index > 0)
    for (int64_t t = 0; t < in.ratio; ++t) add(t, begin - in.ratio + t, 0);
  for (int64_t t = 0; t < in.ratio; ++t) add(t, begin + t, in.overlap ? in.width : 0);
  if (block.rows > 0) f(block);
}

// f<vecs>(i, count) along a row, a line of the cache at a time where it can: rows that lie a power
// of two apart share a set of the first cache, so a line must be used up when it is there.
template <class F>
LETHE_INLINE void for_lines(int64_t width, F&& f) {
  constexpr int64_t kLine = 16;
  int64_t i = 0;
  for (; i + kLine <= width; i += kLine)
    f.template operator()<kLine / kLanes>(i, static_cast<int64_t>(kLanes));
  for (; i < width; i += kLanes)
    f.template operator()<1>(i, width - i < kLanes ? width - i : static_cast<int64_t>(kLanes));
}

// Per channel of one slot, in the thread's scratch: the running softmax, and a row for what lives
// shorter.
struct Channels {
  float *largest, *sum, *pooled, *other;
};

LETHE_INLINE Channels channels_of(const CompressorInputs& in, float* scratch, int thread) {
  const int64_t row = compressor_scratch_floats(in.width, 1) / 4;
  float* base = scratch + thread * 4 * row;
  return {base, base + row, base + 2 * row, base + 3 * row};
}

LETHE_INLINE void fill(float* p, int64_t count, float value) {
  for (int64_t i = 0; i < count; ++i) p[i] = value;
}

// f<rows>(row): two rows of a block at a time, so that what is kept per channel moves half as often
// between registers and cache.
template <class F>
LETHE_INLINE void for_row_pairs(int64_t rows, F&& f) {
  int64_t row = 0;
  for (; row + 2 <= rows; row += 2) f.template operator()<2>(row);
  if (row < rows) f.template operator()<1>(row);
}

// The largest gate so far becomes that of the block too; sum and pooled value follow. Pointers are
// copied first, here and below: for the compiler, a store of floats may change any in memory.
LETHE_INLINE void raise(const CompressorInputs& in,
                        const Block& block,
                        const Channels& channels,
                        bool first) {
  const Channels c = channels;
  if (first) {
    fill(c.largest, in.width, -3.402823466e38F);  // finite: a masked gate is infinitely far below
    fill(c.sum, in.width, 0);
    fill(c.pooled, in.width, 0);
  }
  for_row_pairs(block.rows, [&]<int Rows>(int64_t row) {
    const float *gate[Rows], *ape[Rows];
    for (int k = 0; k < Rows; ++k) {
      gate[k] = in.gate + block.token[row + k];
      ape[k] = in.ape + block.ape[row + k];
    }
    const float* before = row == 0 ? c.largest : c.other;
    const auto line = [&]<int Vecs>(int64_t i, int64_t count) __attribute__((always_inline)) {
      for (int64_t at = i; at < i + Vecs * kLanes; at += kLanes) {
        Vec most = get(before + at, count);
        for (int k = 0; k < Rows; ++k)
          most = max(most, get(gate[k] + at, count) + get(ape[k] + at, count));
        put(c.other + at, most, count);
      }
    };
    for_lines(in.width, line);
  });
  for_vectors(in.width, [&](int64_t i, int64_t count) {
    const Vec largest = get(c.other + i, count);
    if (!first) {
      const Vec shrink = exp_below_88(get(c.largest + i, count) - largest);
      put(c.sum + i, get(c.sum + i, count) * shrink, count);
      put(c.pooled + i, get(c.pooled + i, count) * shrink, count);
    }
    put(c.largest + i, largest, count);
  });
}

// Takes a block into the running softmax. Its arithmetic hides the fetching of the gates `ahead`
// floats further, which the next block reads first; the values are a stream the hardware follows.
LETHE_INLINE void pool_block(const CompressorInputs& in,
                             const Block& block,
                             const Channels& channels,
                             bool first,
                             int64_t ahead) {
  raise(in, block, channels, first);
  const Channels c = channels;
  for_row_pairs(block.rows, [&]<int Rows>(int64_t row) {
    const float *gate[Rows], *ape[Rows], *kv[Rows];
    for (int k = 0; k < Rows; ++k) {
      gate[k] = in.gate + block.token[row + k];
      ape[k] = in.ape + block.ape[row + k];
      kv[k] = in.kv + block.token[row + k];
    }
    const auto line = [&]<int Vecs>(int64_t i, int64_t count) __attribute__((always_inline)) {
      for (int k = 0; k < Rows; ++k) __builtin_prefetch(gate[k] + ahead + i, 0, 2);
#pragma GCC unroll 4
      for (int64_t at = i; at < i + Vecs * kLanes; at += kLanes) {
        const Vec largest = get(c.largest + at, count);
        Vec sum = get(c.sum + at, count), pooled = get(c.pooled + at, count);
        for (int k = 0; k < Rows; ++k) {
          const Vec gates = get(gate[k] + at, count) + get(ape[k] + at, count);
          const Vec e = exp_below_88(gates - largest);
          sum += e;
          pooled = fma(e, get(kv[k] + at, count), pooled);
        }
        put(c.sum + at, sum, count);
        put(c.pooled + at, pooled, count);
      }
    };
    for_lines(in.width, line);
  });
}

// The weighted mean of the window's values, and its softmax: exp(gate - largest) / sum.
LETHE_INLINE void pool(const CompressorInputs& in, int64_t slot, const Channels& c) {
  const int64_t ahead = stride_of(in) * (in.ratio < kBlockRows ? in.ratio : kBlockRows);
  bool first = true;
  for_blocks(in, slot, [&](const Block& block) {
    pool_block(in, block, c, first, ahead);
    first = false;
  });
  for_vectors(in.width, [&](int64_t i, int64_t count) {
    put(c.pooled + i, get(c.pooled + i, count) / get(c.sum + i, count), count);
  });
}

LETHE_INLINE NormRow row_of(const CompressorInputs& in, int64_t slot, int thread, bool inverse) {
  return {.width = in.width,
          .kept = in.width - 2 * in.rotary.pairs,
          .eps = in.eps,
          .weight = in.norm_weight,
          .table = rotary_table(in.rotary, slot, thread, inverse)};
}

// With s the softmax of the gates, e the pooled value:  d_kv = s de,  d_gate = s (v - e) de.
// c.other holds de.
LETHE_INLINE void unpool_row(const CompressorBackward& a,
                             int64_t token,
                             int64_t ape_offset,
                             const Channels& c,
                             float* d_ape) {
  const float *gate = a.in.gate + token, *kv = a.in.kv + token, *ape = a.in.ape + ape_offset;
  float *d_kv = a.d_kv + token, *d_gate = a.d_gate + token, *ape_sum = d_ape + ape_offset;
  const Channels own = c;
  const auto line = [&]<int Vecs>(int64_t i, int64_t count) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int64_t at = i; at < i + Vecs * kLanes; at += kLanes) {
      const Vec above =
          (get(gate + at, count) + get(ape + at, count)) - get(own.largest + at, count);
      const Vec d_value = exp_below_88(above) * get(own.other + at, count);
      const Vec d_weight = d_value * (get(kv + at, count) - get(own.pooled + at, count));
      put(d_kv + at, d_value, count);
      put(d_gate + at, d_weight, count);
      put(ape_sum + at, get(ape_sum + at, count) + d_weight, count);
    }
  };
  for_lines(a.in.width, line);
}

LETHE_INLINE void unpool(const CompressorBackward& a,
                         int64_t slot,
                         const Channels& c,
                         float* d_ape) {
  for_vectors(a.in.width, [&](int64_t i, int64_t count) {
    put(c.other + i, get(c.other + i, count) / get(c.sum + i, count), count);
  });
  for_blocks(a.in, slot, [&](const Block& block) {
    for (int64_t row = 0; row < block.rows; ++row)
      unpool_row(a, block.token[row], block.ape[row], c, d_ape);
  });
}

// What no slot reads: the tokens behind a document's last complete window, and where windows
// overlap the first half of that window's channels.
LETHE_INLINE void clear_unread(const CompressorBackward& a, int64_t document) {
  const CompressorInputs& in = a.in;
  const int64_t stride = stride_of(in), end = in.cu_seqlens[document + 1];
  const int64_t num_slots = in.cu_slots[document + 1] - in.cu_slots[document];
  const int64_t tail = in.cu_seqlens[document] + num_slots * in.ratio;
  fill(a.d_kv + tail * stride, (end - tail) * stride, 0);
  fill(a.d_gate + tail * stride, (end - tail) * stride, 0);
  if (!in.overlap || num_slots == 0) return;
  for (int64_t token = tail - in.ratio; token < tail; ++token) {
    fill(a.d_kv + token * stride, in.width, 0);
    fill(a.d_gate + token * stride, in.width, 0);
  }
}

}  // namespace

void compressor_forward(const CompressorForward& a) {
  const CompressorInputs& in = a.in;
  for_rows(a.parallel, in.slots, 2 * in.width, [&](int64_t slot, int thread) {
    const Channels c = channels_of(in, a.scratch, thread);
    pool(in, slot, c);
    const NormRow n = row_of(in, slot, thread, /*inverse=*/false);
    norm_row_forward<true>(n, c.pooled, a.slots + slot * in.width);
  });
}

void compressor_backward(const CompressorBackward& a) {
  const CompressorInputs& in = a.in;
  for_rows(a.parallel, in.documents, kFloatsPerTask / 64, [&](int64_t document, int) {
    clear_unread(a, document);
  });
  // One task per partial sum, and the sums added in order: the bits do not know the threads.
  const int64_t parts = compressor_partials(in.slots);
  const int64_t floats = in.width + in.ratio * stride_of(in);
  const int64_t step = parts > 0 ? (in.slots + parts - 1) / parts : 0;
  a.parallel(parts, [&](int64_t part, int thread) {
    float *d_norm_weight = a.partials + part * floats, *d_ape = d_norm_weight + in.width;
    fill(d_norm_weight, floats, 0);
    const Channels c = channels_of(in, a.scratch, thread);
    const int64_t end = (part + 1) * step < in.slots ? (part + 1) * step : in.slots;
    for (int64_t slot = part * step; slot < end; ++slot) {
      pool(in, slot, c);
      const NormRow n = row_of(in, slot, thread, /*inverse=*/true);
      norm_row_backward<true>(n, c.pooled, a.d_slots + slot * in.width, c.other, d_norm_weight);
      unpool(a, slot, c, d_ape);
    }
  });
  add_partials(a.parallel, {a.partials, floats}, parts, in.width, a.d_norm_weight);
  add_partials(a.parallel, {a.partials + in.width, floats}, parts, floats - in.width, a.d_ape);
}

}  // namespace lethe::kernels::LETHE_ISA
