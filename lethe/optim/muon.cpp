#include "lethe/optim/muon.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>

#include "lethe/core/byte_accounting.h"
#include "lethe/kernels/cpu/muon.h"

namespace lethe {
namespace {

struct Coefficients {
  double a, b, c;
};

// Quick to a neighbourhood of 1, then exact (model spec 12).
constexpr Coefficients kFast{3.4445, -4.7750, 2.0315}, kFine{2, -1.5, 0.5};
constexpr std::array kSteps{kFast, kFast, kFast, kFast, kFast, kFast, kFast, kFast, kFine, kFine};
static_assert(kSteps.size() % 2 == 0, "the result must end in the buffer it began in");

template <class T>
void normalize_each(const at::Tensor& x) {
  T* values = x.mutable_data_ptr<T>();
  const int64_t count = x.size(1) * x.size(2);
  for (int64_t i = 0; i < x.size(0); ++i) kernels::normalize(count, values + i * count);
}

struct Square {
  at::Tensor gram, poly;  // [N,k,k], k the smaller side
};

// to <- a from + (b A + c A^2) from, or from the right with A = from^T from.
void schulz_step(const Coefficients& k, const at::Tensor& from, at::Tensor& to, Square& square) {
  const bool tall = from.size(1) > from.size(2);
  const at::Tensor turned = from.transpose(1, 2);
  at::bmm_out(square.gram, tall ? turned : from, tall ? from : turned);
  at::baddbmm_out(square.poly, square.gram, square.gram, square.gram, k.b, k.c);
  at::baddbmm_out(to, from, tall ? from : square.poly, tall ? square.poly : from, k.a, 1);
}

int64_t bytes_per_matrix(int64_t rows, int64_t cols, int64_t element_size) {
  const int64_t side = std::min(rows, cols);
  return 2 * (rows * cols + side * side) * element_size;
}

template <class T>
void look_ahead(const MuonConstants& constants,
                const at::Tensor& grad,
                const at::Tensor& momentum,
                const at::Tensor& out) {
  kernels::muon_momentum({.mu = constants.momentum, .grad_scale = constants.grad_scale},
                         grad.numel(),
                         grad.const_data_ptr<T>(),
                         momentum.mutable_data_ptr<T>(),
                         out.mutable_data_ptr<T>());
}

}  // namespace

void hybrid_newton_schulz(at::Tensor& x, at::Tensor& spare) {
  const bool wide = x.scalar_type() == at::kDouble;
  wide ? normalize_each<double>(x) : normalize_each<float>(x);
  const int64_t side = std::min(x.size(1), x.size(2));
  Square square{at::empty({x.size(0), side, side}, x.options()),
                at::empty({x.size(0), side, side}, x.options())};
  at::Tensor *from = &x, *to = &spare;
  for (const Coefficients& k : kSteps) {
    schulz_step(k, *from, *to, square);
    std::swap(from, to);
  }
}

void muon_update(const MuonConstants& constants,
                 int64_t rows,
                 const at::Tensor& grad,
                 const at::Tensor& momentum,
                 const at::Tensor& parameter) {
  const at::NoGradGuard no_grad;
  const ByteTag tag(ByteCategory::Temporaries);
  const int64_t cols = parameter.size(-1), total = parameter.numel() / (rows * cols);
  const int64_t at_once =
      std::clamp(constants.workspace_bytes / bytes_per_matrix(rows, cols, parameter.element_size()),
                 int64_t{1},
                 total);
  const at::Tensor gs = grad.view({total, rows, cols}), ms = momentum.view({total, rows, cols}),
                   ws = parameter.view({total, rows, cols});
  const at::Tensor buffer = at::empty({at_once, rows, cols}, gs.options()),
                   spare_buffer = at::empty({at_once, rows, cols}, gs.options());
  const double step =
      constants.lr * constants.update_rms * std::sqrt(static_cast<double>(std::max(rows, cols)));
  for (int64_t begin = 0; begin < total; begin += at_once) {
    const int64_t count = std::min(at_once, total - begin);
    const auto chunk = [begin, count](const at::Tensor& t) { return t.narrow(0, begin, count); };
    at::Tensor x = buffer.narrow(0, 0, count), spare = spare_buffer.narrow(0, 0, count);
    gs.scalar_type() == at::kDouble ? look_ahead<double>(constants, chunk(gs), chunk(ms), x)
                                    : look_ahead<float>(constants, chunk(gs), chunk(ms), x);
    hybrid_newton_schulz(x, spare);
    chunk(ws).mul_(1 - constants.lr * constants.weight_decay).add_(x, -step);
  }
}

}  // namespace lethe
