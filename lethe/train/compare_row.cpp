#include "lethe/train/compare_row.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ops/isinf.h>
#include <ATen/ops/isnan.h>

#include "lethe/core/describe.h"

namespace lethe {
namespace {

constexpr double kForwardShare = 2e-5, kGradientShare = 1e-4;  // float32, of the rms
constexpr double kFp64Share = 1e-7, kFp64Sums = 1e-9;          // float64, of rms and of norm

CompareRow missed(CompareRow row, const std::string& note) {
  row.verdict = CompareRow::Verdict::Miss;
  row.note = note;
  return row;
}

CompareRow compare_integers(CompareRow row, const at::Tensor& got, const at::Tensor& expected) {
  row.max_abs = got.ne(expected).sum().item<double>();
  row.max_rel = row.max_abs / static_cast<double>(std::max<int64_t>(1, expected.numel()));
  return row.max_abs > 0
             ? missed(std::move(row), "integers must be equal; max abs counts the unequal ones")
             : row;
}

// norm and sum say what no element alone does: a drift of all elements within their limits.
CompareRow check_sums(CompareRow row, const at::Tensor& finite, const Tolerance& tolerance) {
  if (!tolerance.norm64 || !tolerance.sum64) return row;
  const double norm = finite.norm().item<double>(), sum = finite.sum().item<double>();
  const double limit = kFp64Sums * std::max(*tolerance.norm64, std::numeric_limits<double>::min());
  if (std::abs(norm - *tolerance.norm64) <= limit && std::abs(sum - *tolerance.sum64) <= limit)
    return row;
  return missed(
      std::move(row),
      fmt::format("norm {:.12g} and sum {:.12g}, expected {:.12g} and {:.12g} within {:.2g}",
                  norm,
                  sum,
                  *tolerance.norm64,
                  *tolerance.sum64,
                  limit));
}

double limit_of(bool fp64, TensorClass kind, const Tolerance& tolerance, double rms) {
  const double share = kind == TensorClass::Forward ? kForwardShare : kGradientShare;
  if (!tolerance.max_abs) return share * rms;
  if (fp64) return 1.01 * *tolerance.max_abs + kFp64Share * rms;
  return std::max(4 * *tolerance.max_abs, share * rms);
}

}  // namespace

CompareRow compare_tensor(const std::string& name,
                          const at::Tensor& got,
                          const at::Tensor& expected,
                          TensorClass kind,
                          const Tolerance& tolerance) {
  const at::NoGradGuard no_grad;
  CompareRow row{.name = name};
  if (got.numel() != expected.numel())
    return missed(std::move(row),
                  fmt::format("{} elements {}, expected {} {}",
                              got.numel(),
                              shape_text(got),
                              expected.numel(),
                              shape_text(expected)));
  const at::Tensor have = got.detach().reshape(-1), want = expected.reshape(-1);
  if (!expected.is_floating_point())
    return compare_integers(std::move(row), have.to(at::kLong), want.to(at::kLong));
  if (want.numel() == 0) return row;
  const at::Tensor x = have.to(at::kDouble), y = want.to(at::kDouble),
                   zero = at::zeros({}, y.options());
  const at::Tensor infinite = at::isinf(y);
  if (at::isnan(x).any().item<bool>()) return missed(std::move(row), "holds NaN");
  if (!at::isinf(x).eq(infinite).all().item<bool>() ||
      !x.masked_select(infinite).eq(y.masked_select(infinite)).all().item<bool>())
    return missed(std::move(row), "infinities stand in other places");
  const at::Tensor finite = at::where(infinite, zero, x);
  const double rms = at::where(infinite, zero, y).square().mean().sqrt().item<double>();
  row.max_abs = at::where(infinite, zero, x - y).abs().max().item<double>();
  row.max_rel =
      rms > 0 ? row.max_abs / rms : (row.max_abs > 0 ? std::numeric_limits<double>::infinity() : 0);
  const bool fp64 = got.scalar_type() == at::kDouble;
  row.allowed = limit_of(fp64, kind, tolerance, rms);
  if (!(row.max_abs <= row.allowed)) return missed(std::move(row), "beyond the limit");
  return fp64 ? check_sums(std::move(row), finite, tolerance) : row;
}

CompareRow not_compared(const std::string& name, const std::string& why) {
  return {.name = name, .verdict = CompareRow::Verdict::NotCompared, .note = why};
}

double share_of_limit(const CompareRow& row) {
  if (row.allowed > 0) return row.max_abs / row.allowed;
  return row.max_abs > 0 ? std::numeric_limits<double>::infinity() : 0;
}

void sort_worst_first(std::vector<CompareRow>& rows) {
  const auto rank = [](const CompareRow& row) {
    return row.verdict == CompareRow::Verdict::Miss   ? 0
           : row.verdict == CompareRow::Verdict::Pass ? 1
                                                      : 2;
  };
  std::stable_sort(rows.begin(), rows.end(), [&](const CompareRow& a, const CompareRow& b) {
    if (rank(a) != rank(b)) return rank(a) < rank(b);
    return share_of_limit(a) > share_of_limit(b);
  });
}

}  // namespace lethe
