"""examples/transformers_attention: the DeepSeek-V4 model of transformers with Lethe's attention has the logits and the
gradients that it has with its own. Environment: LETHE_LIBRARY, the path of liblethe.so; LETHE_TORCH_VERSION, the torch
it was built with. Exits with 77 when there is nothing to test with."""
import os
import sys
import unittest
from pathlib import Path

SKIPPED = 77
TRANSFORMERS = "5.23.0"
LIBRARY = os.environ.get("LETHE_LIBRARY", "")
BUILT_WITH = os.environ.get("LETHE_TORCH_VERSION", "")


def skip(reason):
    print(f"transformers_example_test.py: skipped: {reason}", file=sys.stderr)
    sys.exit(SKIPPED)


if not LIBRARY or not BUILT_WITH:
    sys.exit("transformers_example_test.py: LETHE_LIBRARY and LETHE_TORCH_VERSION must be set; run it by "
             "`ctest -R python.transformers`")
try:
    import torch
    import transformers
except (ImportError, OSError, ValueError) as error:  # the latter two: libraries of torch are missing
    skip(f"torch and transformers are not importable: {error}")
if torch.__version__.split("+")[0] != BUILT_WITH.split("+")[0]:
    skip(f"python imports torch {torch.__version__}, the library was built with {BUILT_WITH}")
if transformers.__version__ != TRANSFORMERS:
    skip(f"python imports transformers {transformers.__version__}, the example is for {TRANSFORMERS}")

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "transformers_attention"))
import lethe_attention
from transformers.models.deepseek_v4 import DeepseekV4Config, DeepseekV4ForCausalLM

lethe_attention.register(LIBRARY)

CONFIG = {
    "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 1,
    "head_dim": 16, "qk_rope_head_dim": 8, "q_lora_rank": 16, "o_groups": 2, "o_lora_rank": 8, "sliding_window": 16,
    "compress_ratios": [0, 4, 128], "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2,
    "moe_intermediate_size": 16, "num_hash_layers": 0, "num_nextn_predict_layers": 0, "index_n_heads": 4,
    "index_head_dim": 16, "index_topk": 8, "hc_mult": 2, "max_position_embeddings": 1024, "attention_dropout": 0.0,
}
SHARE = 2e-5  # of the largest element of a tensor


def model(implementation):
    """The same weights whatever the implementation."""
    torch.manual_seed(1)
    config = DeepseekV4Config(**CONFIG)
    config._attn_implementation = implementation
    built = DeepseekV4ForCausalLM(config)
    with torch.no_grad():
        for name, value in built.named_parameters():
            if value.dim() > 1:  # so that attention is far from uniform
                value.normal_(0, 0.2)
            elif name.endswith(("sinks", "scale")):
                value.normal_(0, 0.5)
    return built


def run(implementation, ids):
    """Logits and gradients by parameter name."""
    built = model(implementation)
    out = built(input_ids=ids, labels=ids, use_cache=False)
    out.loss.backward()
    return out.logits.detach(), {n: p.grad for n, p in built.named_parameters() if p.grad is not None}


class TransformersExample(unittest.TestCase):
    def assert_near(self, got, expected, name):
        off = (got - expected).abs().max().item()
        self.assertLessEqual(off, SHARE * expected.abs().max().item() + 1e-12, name)

    def test_logits_and_gradients_are_those_of_eager_attention(self):
        for batch, tokens in ((1, 300), (2, 133), (2, 3)):  # with slots of both kinds, in a batch, without any
            with self.subTest(batch=batch, tokens=tokens):
                ids = torch.randint(CONFIG["vocab_size"], (batch, tokens), generator=torch.Generator().manual_seed(tokens))
                expected, expected_grads = run("eager", ids)
                logits, grads = run("lethe", ids)
                self.assert_near(logits, expected, "logits")
                for name in expected_grads:
                    self.assert_near(grads[name], expected_grads[name], name)

    def test_padding_is_refused(self):
        ids = torch.zeros((2, 8), dtype=torch.int64)
        mask = torch.ones_like(ids)
        mask[0, :3] = 0
        with self.assertRaisesRegex(ValueError, "without padding"):
            model("lethe")(input_ids=ids, attention_mask=mask, use_cache=False)


if __name__ == "__main__":
    unittest.main()
