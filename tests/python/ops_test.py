"""The operators of liblethe as an importable torch sees them: every one has a Meta implementation that agrees with
the CPU's, some pass torch's own operator checks and a numerical gradient. Environment: LETHE_LIBRARY, the path of
liblethe.so; LETHE_TORCH_VERSION, the torch it was built with. Exits with 77 when there is nothing to test with."""
import os
import sys
import unittest

SKIPPED = 77
LIBRARY = os.environ.get("LETHE_LIBRARY", "")
BUILT_WITH = os.environ.get("LETHE_TORCH_VERSION", "")


def skip(reason):
    print(f"ops_test.py: skipped: {reason}", file=sys.stderr)
    sys.exit(SKIPPED)


try:
    import torch
except (ImportError, OSError, ValueError) as error:  # the latter two: libraries of torch are missing
    skip(f"torch is not importable: {error}")
if not LIBRARY or not BUILT_WITH:
    sys.exit("ops_test.py: LETHE_LIBRARY and LETHE_TORCH_VERSION must be set; run it by `ctest -R python.ops`")
if torch.__version__.split("+")[0] != BUILT_WITH.split("+")[0]:
    skip(f"python imports torch {torch.__version__}, the library was built with {BUILT_WITH}")
torch.ops.load_library(LIBRARY)

DOCUMENTS = [0, 9, 10, 21]  # lengths 9, 1 and 11
T, H, C, D, E, K, STREAMS = DOCUMENTS[-1], 2, 8, 6, 5, 2, 3
RATIO = 4
SLOTS = sum((end - begin) // RATIO for begin, end in zip(DOCUMENTS, DOCUMENTS[1:]))


def real(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def integers(high, *shape, dtype=torch.int64):
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(high), dtype=dtype)


def starts():
    return torch.tensor(DOCUMENTS, dtype=torch.int32)


def experts_of_tokens():
    return real(T, E).topk(K).indices.sort(-1).values.to(torch.int32)


def indexer():
    return real(T, H, C), real(SLOTS, C), real(T, H)


def attention(slots, indices):
    return real(T, H, C), real(T, C), slots, indices, real(H), starts()


def rotation():
    return torch.arange(T), real(2).abs()


def compressor(ratio):
    positions = [slot * ratio for begin, end in zip(DOCUMENTS, DOCUMENTS[1:]) for slot in range((end - begin) // ratio)]
    width = 2 * C if ratio == RATIO else C
    return (real(T, width), real(T, width), real(ratio, width), real(C), torch.tensor(positions, dtype=torch.int64),
            real(2).abs(), starts(), ratio, 1e-6)


def mixing(rows, scales):
    return real(T, STREAMS, D), real(rows, STREAMS * D), real(rows), real(scales)


# Operator -> its arguments in one or more small calls.
CALLS = {
    "balance_loss": lambda: [(real(T, E).abs(), starts(), K)],
    "compressor": lambda: [compressor(ratio) for ratio in (RATIO, 8, 128)],
    "cross_entropy": lambda: [(real(T, D), real(E, D), integers(E, T), 4)],
    "embedding": lambda: [(integers(E, T), real(E, D)), (integers(E, T), real(E, D).bfloat16())],
    "expert_counts": lambda: [(experts_of_tokens(), E)],
    "experts": lambda: [(real(T, D), real(T, K), experts_of_tokens(), real(E, 8, D), real(E, D, 4), 1.0)],
    "gate": lambda: [(real(T, D), real(E, D), real(E), None, K, name, True, 1.5)
                     for name in ("sqrtsoftplus", "sigmoid", "softmax")]
    + [(real(T, D).bfloat16(), real(E, D), None, experts_of_tokens(), K, "sqrtsoftplus", False, 1.5)],
    "gate_lookup": lambda: [(integers(E, T), integers(3, E, 1, dtype=torch.int32))],
    "grouped_linear": lambda: [(real(T, 2 * C), real(2 * D, C), 2)],
    "hadamard": lambda: [(real(T, C),), (real(T, H, C).bfloat16(),), (real(T, C).double(),)],
    "indexer_kl": lambda: [(*attention(real(SLOTS, C), None), None, *indexer(), 3, RATIO, 0.5, True)],
    "indexer_scores": lambda: [(*indexer(), starts(), RATIO)],
    "lightning_indexer": lambda: [(*indexer(), starts(), RATIO, topk) for topk in (1, 100)],
    "linear": lambda: [(real(T, D), real(E, D)), (real(T, 2, D).bfloat16(), real(E, D))],
    "mhc_head": lambda: [(*mixing(STREAMS, 1), 1e-6, 1e-6)],
    "mhc_post": lambda: [(real(T, D), real(T, STREAMS, D), real(T, STREAMS), real(T, STREAMS, STREAMS))],
    "mhc_pre": lambda: [(*mixing(STREAMS * (STREAMS + 2), 3), 4, 1e-6, 1e-6)],
    "norm_rope": lambda: [(real(T, H, C), None, torch.arange(T), real(2).abs(), 1e-6),
                          (real(T, C).bfloat16(), real(C), torch.arange(T), real(4).abs(), 1e-6)],
    "rms_norm": lambda: [(real(T, D), real(D), 1e-6), (real(T, H, D).double(), None, 1e-6)],
    "rope": lambda: [(real(T, H, C), *rotation(), inverse) for inverse in (False, True)],
    "sinkhorn": lambda: [(real(T, STREAMS, STREAMS), 4, 1e-6)],
    "sparse_attention": lambda: [(*attention(None, None), None, None, 3, 0, 0.5, False),
                                 (*attention(real(SLOTS, C), None), *rotation(), 3, RATIO, 0.5, True),
                                 (*attention(real(SLOTS, C), torch.full((T, 2), -1, dtype=torch.int32)), *rotation(),
                                  3, RATIO, 0.5, True)],
    "swiglu_mlp": lambda: [(real(T, D), real(8, D), real(D, 4), 1.0)],
    "update_router_bias": lambda: [(real(E), integers(50, E), 0.001)],
}

# Without document boundaries: a fake tensor has none to read, so opcheck cannot trace the others.
TRACED = ("grouped_linear", "hadamard", "linear", "mhc_head", "mhc_post", "mhc_pre", "norm_rope", "rms_norm",
          "rope", "sinkhorn", "swiglu_mlp", "update_router_bias")
WITH_DOCUMENTS = ("compressor", "indexer_scores", "sparse_attention")
# Given indices are read and checked, which a fake tensor does not allow either.
WITH_INDICES = ("gate",)


def operator(name):
    return getattr(torch.ops.lethe, name).default


def differentiable(arguments):
    """The arguments as leaves: every float32 and float64 tensor asks for its gradient."""
    return tuple(a.clone().requires_grad_() if isinstance(a, torch.Tensor) and a.dtype in (torch.float32, torch.float64)
                 else a for a in arguments)


def on_meta(arguments):
    """The arguments without data, but for the document boundaries: they live on the CPU by contract."""
    boundaries = starts()
    return tuple(a if not isinstance(a, torch.Tensor) or (a.dtype == torch.int32 and torch.equal(a, boundaries))
                 else a.to("meta") for a in arguments)


def kinds(result):
    """[(shape, dtype)] of one output or of several."""
    outputs = result if isinstance(result, (tuple, list)) else [result]
    return [(tuple(out.shape), out.dtype) for out in outputs if out is not None]


class Operators(unittest.TestCase):
    def test_every_registered_operator_has_a_call_and_every_call_an_operator(self):
        prefix = "lethe::"
        registered = {name[len(prefix):].split(".")[0] for name in torch._C._dispatch_get_all_op_names()
                      if name.startswith(prefix)}
        self.assertEqual(registered, set(CALLS))

    def test_meta_outputs_have_the_shapes_and_dtypes_of_the_cpu(self):
        for name, calls in CALLS.items():
            self.assertTrue(torch._C._dispatch_has_kernel_for_dispatch_key(f"lethe::{name}", "Meta"), name)
            for i, arguments in enumerate(calls()):
                with self.subTest(operator=name, call=i):
                    meta = operator(name)(*on_meta(arguments))
                    self.assertEqual(kinds(meta), kinds(operator(name)(*arguments)))
                    outputs = meta if isinstance(meta, (tuple, list)) else [meta]
                    self.assertTrue(all(out.is_meta for out in outputs if out is not None))

    def test_opcheck_passes(self):
        for name in TRACED:
            for i, arguments in enumerate(CALLS[name]()):
                with self.subTest(operator=name, call=i):
                    mutates = operator(name)._schema.is_mutable
                    torch.library.opcheck(operator(name), arguments if mutates else differentiable(arguments),
                                          test_utils=("test_schema", "test_autograd_registration", "test_faketensor"))

    def test_opcheck_passes_where_documents_are_read(self):
        for name in WITH_DOCUMENTS + WITH_INDICES:
            for i, arguments in enumerate(CALLS[name]()):
                with self.subTest(operator=name, call=i):
                    torch.library.opcheck(operator(name), differentiable(arguments),
                                          test_utils=("test_schema", "test_autograd_registration"))

    def check_gradient(self, name, arguments, float32=()):
        """In float64, but for the arguments at the indices `float32`, which are no variables."""
        leaves = tuple(a.double().requires_grad_() if isinstance(a, torch.Tensor) and a.is_floating_point()
                       and i not in float32 else a for i, a in enumerate(arguments))
        self.assertTrue(torch.autograd.gradcheck(operator(name), leaves, check_undefined_grad=True))

    def test_gradient_of_rms_norm_agrees_with_finite_differences(self):
        self.check_gradient("rms_norm", CALLS["rms_norm"]()[0])

    def test_gradient_of_the_overlapping_compressor_agrees_with_finite_differences(self):
        self.check_gradient("compressor", CALLS["compressor"]()[0], float32=(5,))


if __name__ == "__main__":
    unittest.main()
