#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

// Inside lethe/ops only: how an operator enters the dispatcher, and how its typed wrapper calls it.

/// Registers schema and implementations of lethe::<op>. `impl` runs on CPU and CUDA below autograd,
/// `meta` makes outputs of the right shape and dtype, `autograd` calls the operator below autograd
/// and records its node.
#define LETHE_REGISTER_OP(op, schema, impl_fn, meta_fn, autograd_fn) \
  TORCH_LIBRARY_FRAGMENT(lethe, m) {                                 \
    m.def(schema);                                                   \
  }                                                                  \
  TORCH_LIBRARY_IMPL(lethe, CPU, m) {                                \
    m.impl(#op, impl_fn);                                            \
  }                                                                  \
  TORCH_LIBRARY_IMPL(lethe, CUDA, m) {                               \
    m.impl(#op, impl_fn);                                            \
  }                                                                  \
  TORCH_LIBRARY_IMPL(lethe, Meta, m) {                               \
    m.impl(#op, meta_fn);                                            \
  }                                                                  \
  TORCH_LIBRARY_IMPL(lethe, Autograd, m) {                           \
    m.impl(#op, autograd_fn);                                        \
  }

/// A typed handle on lethe::<op>, looked up once.
#define LETHE_OP_HANDLE(op, ...)                                                                \
  ([]() -> const c10::TypedOperatorHandle<__VA_ARGS__>& {                                       \
    static const auto handle =                                                                  \
        c10::Dispatcher::singleton().findSchemaOrThrow("lethe::" #op, "").typed<__VA_ARGS__>(); \
    return handle;                                                                              \
  }())
