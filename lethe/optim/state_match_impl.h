#pragma once

#include <vector>

#include "lethe/optim/optimizer.h"

// Inside lethe/optim only: whether a stored state is that of an optimizer.
namespace lethe {

/// The given tensors in the order of `own`. CheckpointError naming every tensor that is missing,
/// not wanted, there twice, or of another dtype or shape.
Tensors match_state(const std::vector<StateTensor>& own, const std::vector<StateTensor>& given);

/// The given counts in the order of `own`; CheckpointError likewise, also for negative counts.
std::vector<int64_t> match_counts(const std::vector<UpdateCount>& own,
                                  const std::vector<UpdateCount>& given);

}  // namespace lethe
