#pragma once

#include "lethe/base/documents.h"
#include "lethe/core/node.h"

// Inside lethe/ops only: the gradient of the indexer's operators.
namespace lethe::ops {

/// The backward function of a node that saved q, k, w and, for a selection, its indices. It gets d
/// [T, *] over the scores' columns or the selected ones. fused: what ran forward.
BackwardFn indexer_gradient(Documents documents, int64_t ratio, bool fused);

}  // namespace lethe::ops
