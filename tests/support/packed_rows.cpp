#include "support/packed_rows.h"

#include <limits>

#include <fmt/ranges.h>

#include <ATen/ops/rand.h>

#include "lethe/base/documents.h"
#include "lethe/ops/select_topk.h"

namespace lethe::test {

const std::vector<Lengths>& packed_rows() {
  static const std::vector<Lengths> rows{{1},
                                         {3},
                                         {4},
                                         {5},
                                         {7},
                                         {8},
                                         {9},
                                         {16},
                                         {31},
                                         {33},
                                         {64},
                                         {3, 4, 5},
                                         {1, 16, 7},
                                         {9, 1, 33, 3, 8},
                                         {1, 1}};
  return rows;
}

std::string lengths_text(const Lengths& lengths) {
  return fmt::format("[{}]", fmt::join(lengths, ","));
}

at::Tensor cu_of(const Lengths& lengths) {
  return at::tensor(Documents::from_lengths(lengths).cu_seqlens(), at::kInt);
}

int64_t tokens_of(const Lengths& lengths) {
  return Documents::from_lengths(lengths).tokens();
}

int64_t slots_of(const Lengths& lengths, int64_t ratio) {
  return Documents::from_lengths(lengths).cu_slots(ratio).back();
}

at::Tensor rotated(const at::Tensor& x,
                   const std::vector<int64_t>& positions,
                   const at::Tensor& inv_freq) {
  const int64_t pairs = inv_freq.numel(), plain = x.size(-1) - 2 * pairs;
  at::Tensor angle =
      (at::tensor(positions, at::kLong).to(at::kFloat).unsqueeze(1) * inv_freq).to(x.scalar_type());
  while (angle.dim() < x.dim()) angle = angle.unsqueeze(1);
  const at::Tensor tail = x.narrow(-1, plain, 2 * pairs).unflatten(-1, {pairs, 2});
  const at::Tensor a = tail.select(-1, 0), b = tail.select(-1, 1);
  const at::Tensor turned =
      at::stack({a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()}, -1);
  return at::cat({x.narrow(-1, 0, plain), turned.flatten(-2)}, -1);
}

at::Tensor random_selection(const Lengths& lengths, int64_t ratio, int64_t k) {
  const Documents documents = Documents::from_lengths(lengths);
  const auto cu_slots = documents.cu_slots(ratio);
  std::vector<at::Tensor> rows;
  for (int64_t d = 0; d < documents.count(); ++d) {
    const int64_t length = documents.length(d), first = cu_slots[static_cast<size_t>(d)];
    const at::Tensor visible = at::arange(1, length + 1, at::kLong).div(ratio, "floor");
    const at::Tensor ids = ops::select_topk(at::rand({length, length / ratio}), visible, k);
    rows.push_back((ids + first).masked_fill(ids < 0, -1));
  }
  return at::cat(rows).to(at::kInt);
}

at::Tensor packed_leaf(const at::Tensor& t) {
  return t.detach().flatten(0, 1).contiguous().requires_grad_();
}

}  // namespace lethe::test
