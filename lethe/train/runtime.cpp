#include "lethe/train/runtime.h"

#include <ATen/Parallel.h>

#include "lethe/core/byte_accounting.h"

namespace lethe {

void prepare_runtime(int64_t threads) {
  install_byte_accounting();
  if (threads > 0) at::set_num_threads(static_cast<int>(threads));
}

}  // namespace lethe
