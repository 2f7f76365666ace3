#include "lethe/model/micro_batch.h"

#include <algorithm>

#include <ATen/ops/full_like.h>

#include "lethe/base/error.h"
#include "lethe/core/live_blocks.h"

namespace lethe {
namespace {

at::Tensor int64_tensor(std::span<const int64_t> values, at::Device device) {
  const at::Tensor host =
      at::empty({static_cast<int64_t>(values.size())}, at::TensorOptions().dtype(at::kLong));
  std::copy(values.begin(), values.end(), host.data_ptr<int64_t>());
  return host.to(device);
}

}  // namespace

MicroBatch make_micro_batch(std::span<const int64_t> ids,
                            std::span<const int64_t> labels,
                            std::span<const int32_t> cu_seqlens,
                            std::span<const int64_t> ratios,
                            at::Device device) {
  const ProducerTag producer({}, "batch");
  MicroBatch batch{.documents = Documents(cu_seqlens)};
  const auto tokens = static_cast<size_t>(batch.documents.tokens());
  LETHE_CHECK(ShapeError,
              ids.size() == tokens && labels.size() == tokens,
              "micro-batch: ids and labels must have cu_seqlens' {} tokens, got {} and {}; pass "
              "one label per token",
              tokens,
              ids.size(),
              labels.size());
  batch.ids = int64_tensor(ids, device);
  batch.labels = int64_tensor(labels, device);
  batch.positions = int64_tensor(batch.documents.positions(), device);
  batch.cu_seqlens =
      at::empty({static_cast<int64_t>(cu_seqlens.size())}, at::TensorOptions().dtype(at::kInt));
  std::copy(cu_seqlens.begin(), cu_seqlens.end(), batch.cu_seqlens.data_ptr<int32_t>());
  for (const int64_t ratio : ratios)
    if (ratio > 0 && !batch.slot_positions.contains(ratio))
      batch.slot_positions[ratio] = int64_tensor(batch.documents.slot_positions(ratio), device);
  return batch;
}

at::Tensor shift_left(const at::Tensor& values,
                      const Documents& documents,
                      int64_t by,
                      int64_t fill) {
  const at::Tensor host = values.cpu().contiguous();
  const at::Tensor out = at::full_like(host, fill);
  const int64_t* from = host.const_data_ptr<int64_t>();
  int64_t* to = out.data_ptr<int64_t>();
  for (int64_t d = 0; d < documents.count(); ++d)
    for (int64_t t = documents.begin(d); t + by < documents.end(d); ++t) to[t] = from[t + by];
  return out.to(values.device());
}

}  // namespace lethe
