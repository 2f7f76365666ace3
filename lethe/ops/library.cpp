#include <torch/library.h>

// The namespace of all operators; each operator's file adds its own fragment.
TORCH_LIBRARY(lethe, library) {
  static_cast<void>(library);
}
