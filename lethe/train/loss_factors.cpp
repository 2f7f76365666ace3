#include "lethe/train/loss_factors.h"

namespace lethe {
namespace {

double share(double weight, int64_t count) {
  return count > 0 ? weight / static_cast<double>(count) : 0.0;
}

// Labels of depth d are the main labels d + 1 tokens further on in the same document.
int64_t counted(const Batch& batch, int64_t further) {
  const Documents documents(batch.cu_seqlens);
  int64_t sum = 0;
  for (int64_t d = 0; d < documents.count(); ++d)
    for (int64_t t = documents.begin(d) + further; t < documents.end(d); ++t)
      sum += batch.labels[static_cast<size_t>(t)] != kIgnoredLabel ? 1 : 0;
  return sum;
}

}  // namespace

StepCounts count_labels(std::span<const Batch> micro_batches, int64_t num_mtp) {
  StepCounts counts{.mtp = std::vector<int64_t>(static_cast<size_t>(num_mtp)),
                    .micro_batches = static_cast<int64_t>(micro_batches.size())};
  for (const Batch& batch : micro_batches) {
    counts.tokens += batch.tokens();
    counts.main += counted(batch, 0);
    for (int64_t k = 0; k < num_mtp; ++k)
      counts.mtp[static_cast<size_t>(k)] += counted(batch, k + 1);
  }
  return counts;
}

LossFactors loss_factors(const TrainConfig& train, const StepCounts& counts, double mtp_weight) {
  LossFactors factors{.main = share(1, counts.main),
                      .indexer = share(train.indexer_loss_coeff.value_or(0), counts.tokens),
                      .balance = share(train.balance_loss_coeff, counts.micro_batches),
                      .csa_attention = train.csa_attention,
                      .indexer_loss = train.indexer_loss_coeff.value_or(0) > 0 ? train.indexer_loss
                                                                               : IndexerLoss::Off,
                      .teacher = train.indexer_teacher,
                      .balance_hash_layers = train.balance_hash_layers};
  for (const int64_t count : counts.mtp)
    factors.mtp.push_back(share(mtp_weight / static_cast<double>(counts.mtp.size()), count));
  return factors;
}

}  // namespace lethe
