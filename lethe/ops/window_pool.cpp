#include "lethe/ops/window_pool.h"

namespace lethe::ops {

SlotWindows slot_windows(const Documents& documents, int64_t ratio, at::Device device) {
  const std::vector<int32_t> cu_slots = documents.cu_slots(ratio);
  const int64_t num_slots = cu_slots.back();
  const auto index = at::TensorOptions().dtype(at::kLong);
  const at::Tensor begins = at::empty({num_slots}, index),
                   first = at::zeros({num_slots}, at::kBool),
                   last = at::zeros({num_slots}, at::kBool);
  auto* begin = begins.data_ptr<int64_t>();
  for (int64_t d = 0; d < documents.count(); ++d) {
    const int64_t from = cu_slots[static_cast<size_t>(d)],
                  to = cu_slots[static_cast<size_t>(d) + 1];
    for (int64_t s = from; s < to; ++s) begin[s] = documents.begin(d) + (s - from) * ratio;
    if (to == from) continue;
    first.data_ptr<bool>()[from] = true;
    last.data_ptr<bool>()[to - 1] = true;
  }
  const at::Tensor self = at::arange(num_slots, index);
  const at::Tensor tokens = (begins.unsqueeze(1) + at::arange(ratio, index)).flatten();
  const at::Tensor previous = at::where(first, self, self - 1),
                   next = at::where(last, self, self + 1);
  return {tokens.to(device),
          previous.to(device),
          next.to(device),
          first.view({-1, 1, 1}).to(device),
          last.view({-1, 1, 1}).to(device)};
}

at::Tensor pooled_rows(const at::Tensor& x,
                       const at::Tensor& bias,
                       const SlotWindows& windows,
                       double absent) {
  const int64_t num_slots = windows.previous.numel(), width = x.size(1);
  const int64_t ratio = windows.tokens.numel() / num_slots;
  at::Tensor rows = x.index_select(0, windows.tokens).view({num_slots, ratio, width});
  if (bias.defined()) rows = rows + bias;
  if (pool_halves(ratio) == 1) return rows;
  const int64_t d = width / 2;
  const at::Tensor before =
      rows.narrow(2, 0, d).index_select(0, windows.previous).masked_fill(windows.first, absent);
  return at::cat({before, rows.narrow(2, d, d)}, 1);
}

at::Tensor unpool_rows(const at::Tensor& rows, const SlotWindows& windows) {
  const int64_t num_slots = windows.previous.numel(), ratio = windows.tokens.numel() / num_slots;
  if (pool_halves(ratio) == 1) return rows;
  // Channels [0,d) of a window were read by the next slot of its document only: a gather, not a
  // scatter.
  const at::Tensor before =
      rows.narrow(1, 0, ratio).index_select(0, windows.next).masked_fill(windows.last, 0.0);
  return at::cat({before, rows.narrow(1, ratio, ratio)}, 2);
}

}  // namespace lethe::ops
