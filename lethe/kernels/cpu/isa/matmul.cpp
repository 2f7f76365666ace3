#include "lethe/kernels/cpu/matmul.h"

#include "lethe/kernels/cpu/isa/panels.h"
#include "lethe/kernels/cpu/isa/product.h"
#include "lethe/kernels/cpu/isa/slices.h"

// Blocks of b are packed by all threads into panels, then each task packs some rows of a and
// multiplies them with all panels. A panel's part of kSumDepth stays in the first cache while the
// rows pass, the rows stay in the second while the panels pass.
namespace lethe::kernels::LETHE_ISA {
namespace {

// A block of b.
constexpr int64_t kBlockDepth = 1024, kBlockColumns = 1024;

// Sums run over this many k in registers and are then added to c.
constexpr int64_t kSumDepth = kLanes == 16 ? 128 : 256;
static_assert(kBlockDepth % kSumDepth == 0 && kBlockColumns % kTileColumns == 0);

struct Scratch {
  int64_t panels, per_thread;

  explicit Scratch(const MatmulSizes& a)
      : panels(smaller(a.depth, kBlockDepth) *
               round_up(smaller(a.columns, kBlockColumns), kTileColumns)),
        per_thread(packed_floats(smaller(a.depth, kBlockDepth), most_rows(a))) {}

 private:
  static int64_t most_rows(const MatmulSizes& a) {
    const Slices slices(a.rows, kTileRows, a.threads);
    int64_t most = 0;
    for (int64_t i = 0; i < slices.count; ++i) {
      const int64_t rows = slices.begin(i + 1) - slices.begin(i);
      most = rows > most ? rows : most;
    }
    return most;
  }
};

// Columns [column, column + columns) of b, steps [k, k + depth), and where its panels lie.
struct PackedBlock {
  int64_t column, columns, k, depth;
  float* panels;

  [[nodiscard]] int64_t count() const { return (columns + kTileColumns - 1) / kTileColumns; }

  [[nodiscard]] float* panel(int64_t i) const { return panels + i * depth * kTileColumns; }
};

void pack_panel(const StridedMatrix& b, const PackedBlock& block, int64_t i) {
  const int64_t begin = i * kTileColumns, columns = smaller(block.columns - begin, kTileColumns);
  const float* from = b.data + block.k * b.row_stride + (block.column + begin) * b.column_stride;
  if (b.column_stride == 1)
    return copy_panel(from, b.row_stride, block.depth, columns, block.panel(i));
  for (int64_t part = 0; part < kTileColumns; part += kLanes) {
    const float* lanes[kLanes];
    for (int64_t t = 0; t < kLanes; ++t)
      lanes[t] = part + t < columns ? from + (part + t) * b.column_stride : nullptr;
    gather_lanes(lanes, block.depth, block.panel(i) + part);
  }
}

// Rows that lie side by side in memory, step by step: one stream through it.
void copy_rows(
    const float* from, int64_t stride, const Block& block, const Left& left, float* out) {
  for (int64_t k = 0; k < block.columns; ++k, from += stride, out += kTileRows)
    for (int64_t row = 0; row < block.rows; row += kTileRows)
      // Whole vectors, each overwriting what the one before wrote behind its kTileRows.
      for (int64_t i = 0; i < kTileRows; i += kLanes) {
        const int64_t some = block.rows - row - i;
        store(
            out + row / kTileRows * left.group + i,
            some >= kLanes ? load(from + row + i) : load_some(from + row + i, some > 0 ? some : 0));
      }
}

Left pack_rows_of(const StridedMatrix& a, const Block& block, float* buffer) {
  const float* from = a.data + block.row * a.row_stride + block.column * a.column_stride;
  if (a.column_stride == 1) return pack_rows(from, a.row_stride, block, buffer);
  const Left left = packed(buffer, block.columns);
  copy_rows(from, a.column_stride, block, left, buffer);
  return left;
}

// One tile of c.
struct Tile {
  int64_t depth;
  const float *a, *b;
  float* c;
  int64_t c_row, columns;
  bool add;
};

template <int Rows = kTileRows>
void multiply_tile(const Tile& t, int64_t rows) {
  if constexpr (Rows > 1)
    if (rows < Rows) return multiply_tile<Rows - 1>(t, rows);
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) __builtin_prefetch(t.c + i * t.c_row, 1);
  Vec sum[Rows][kTileVecs] = {};
  tile_sums<Rows, kTileVecs>(t.depth, t.a, 1, kTileRows, t.b, kTileColumns, sum);
  store_columns<Rows>(sum, t.c, t.c_row, t.columns, t.add);
}

// c[row .. row + rows][columns of some panels] with the packed rows `left`.
void multiply_rows(const Matmul& a,
                   const PackedBlock& block,
                   int64_t row,
                   int64_t rows,
                   const Left& left,
                   int64_t first_panel,
                   int64_t last_panel) {
  for (int64_t k = 0; k < block.depth; k += kSumDepth)
    for (int64_t panel = first_panel; panel < last_panel; ++panel)
      for (int64_t i = 0; i < rows; i += kTileRows)
        multiply_tile({.depth = smaller(block.depth - k, kSumDepth),
                       .a = left.p + i / kTileRows * left.group + k * kTileRows,
                       .b = block.panel(panel) + k * kTileColumns,
                       .c = a.c + (row + i) * a.c_row + block.column + panel * kTileColumns,
                       .c_row = a.c_row,
                       .columns = block.columns - panel * kTileColumns,
                       .add = a.add || block.k + k > 0},
                      smaller(rows - i, kTileRows));
}

void multiply_block(const Matmul& a, const PackedBlock& block, float* scratch, int64_t per_thread) {
  a.parallel(block.count(), [&](int64_t i, int) { pack_panel(a.b, block, i); });
  const Slices slices(a.rows, kTileRows, a.parallel.threads);
  // Few rows: threads share out the panels too, each with its own copy of the rows.
  const int64_t parts =
      smaller((a.parallel.threads + slices.count - 1) / slices.count, block.count());
  a.parallel(slices.count * parts, [&](int64_t task, int thread) {
    const int64_t slice = task / parts, part = task % parts, row = slices.begin(slice);
    const int64_t rows = slices.begin(slice + 1) - row;
    const Left left =
        pack_rows_of(a.a, {row, rows, block.k, block.depth}, scratch + thread * per_thread);
    multiply_rows(a,
                  block,
                  row,
                  rows,
                  left,
                  block.count() * part / parts,
                  block.count() * (part + 1) / parts);
  });
}

void clear(const Matmul& a) {
  for (int64_t row = 0; row < a.rows; ++row)
    std::memset(a.c + row * a.c_row, 0, static_cast<size_t>(a.columns) * sizeof(float));
}

}  // namespace

int64_t matmul_scratch(const MatmulSizes& a) {
  const Scratch scratch(a);
  return scratch.panels + a.threads * scratch.per_thread;
}

void matmul(const Matmul& a) {
  if (a.rows == 0 || a.columns == 0) return;
  if (a.depth == 0 && !a.add) clear(a);
  const Scratch scratch({a.rows, a.columns, a.depth, a.parallel.threads});
  for (int64_t column = 0; column < a.columns; column += kBlockColumns)
    for (int64_t k = 0; k < a.depth; k += kBlockDepth)
      multiply_block(a,
                     {column,
                      smaller(a.columns - column, kBlockColumns),
                      k,
                      smaller(a.depth - k, kBlockDepth),
                      a.scratch},
                     a.scratch + scratch.panels,
                     scratch.per_thread);
}

}  // namespace lethe::kernels::LETHE_ISA
