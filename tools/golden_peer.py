"""The transformers side of make_golden.py: loads a DeepSeek-V4 model, runs it and records what it computes."""
import contextlib
from unittest import mock

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch.overrides import TorchFunctionMode
from transformers import DeepseekV4ForCausalLM
from transformers.models.deepseek_v4 import modeling_deepseek_v4 as modeling

IGNORED = -100

# Part of a transformers name -> part of the hub name, applied in this order. transformers reads hub names but does
# not write them: its own reversal confuses the norms of attention and compressor.
_RENAMES = (
    ("lm_head.", "head."), ("model.", ""), ("embed_tokens.", "embed."), ("hc_head.hc_", "hc_head_"),
    (".self_attn.compressor.indexer.scorer.", ".attn.indexer."),
    (".self_attn.compressor.indexer.q_b_proj.", ".attn.indexer.wq_b."),
    (".self_attn.compressor.indexer.", ".attn.indexer.compressor."), (".self_attn.", ".attn."), (".mlp.", ".ffn."),
    (".compressor.kv_norm.", ".compressor.norm."), (".compressor.gate_proj.", ".compressor.wgate."),
    ("input_layernorm.", "attn_norm."), ("post_attention_layernorm.", "ffn_norm."),
    ("attn_hc.", "hc_attn_"), ("ffn_hc.", "hc_ffn_"), (".sinks", ".attn_sink"), (".position_bias", ".ape"),
    (".q_a_norm.", ".q_norm."), (".q_a_proj.", ".wq_a."), (".q_b_proj.", ".wq_b."), (".kv_proj.", ".wkv."),
    (".o_a_proj.", ".wo_a."), (".o_b_proj.", ".wo_b."), (".gate.e_score_correction_bias", ".gate.bias"),
    (".shared_experts.gate_proj.", ".shared_experts.w1."), (".shared_experts.down_proj.", ".shared_experts.w2."),
    (".shared_experts.up_proj.", ".shared_experts.w3."),
)


class Float64(TorchFunctionMode):
    """Widens every cast to float32 inside the model. The angle of the rotation keeps its float32 rounding, which is
    part of the model's definition; nothing else in the model takes a sine or cosine."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        def widen(value):
            return torch.float64 if value is torch.float32 else value

        if func is torch.Tensor.float:
            return args[0].double()
        if func in (torch.Tensor.cos, torch.Tensor.sin):
            args = (args[0].to(dtype=torch.float32).double(),)
        else:
            args = tuple(map(widen, args))
            kwargs = {name: widen(value) for name, value in (kwargs or {}).items()}
        return func(*args, **(kwargs or {}))


class SmallerSlotFirst(TorchFunctionMode):
    """Lets the smaller slot win among equal scores, as the model's definition has it; torch's own choice is open.
    The indexer's ReLU makes scores of exactly 0, hence ties, common."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is not torch.Tensor.topk:
            return func(*args, **(kwargs or {}))
        scores, count = args
        order = scores.sort(descending=True, stable=True, **kwargs)
        return torch.return_types.topk((order.values[..., :count], order.indices[..., :count]))


def load(folder):
    """The model in float32, every tensor checked against the files of the folder."""
    model, info = DeepseekV4ForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager",
        output_loading_info=True)
    for problem in ("missing_keys", "mismatched_keys"):
        if info[problem]:
            raise SystemExit(f"{folder}: its files must hold every tensor of the model, got {problem} "
                             f"{sorted(map(str, info[problem]))[:5]}; is the checkpoint complete?")
    written = {}
    for path in sorted(folder.glob("*.safetensors")):
        written.update({name: value for name, value in load_file(path).items() if not name.startswith("mtp.")})
    loaded = hub_names(model.state_dict())
    if loaded.keys() != written.keys():
        raise SystemExit(f"{folder}: the tensors (without mtp.*) must be those of an unquantized model under hub "
                         f"names, got a difference in {sorted(loaded.keys() ^ written.keys())[:5]}")
    for name, value in loaded.items():
        if not torch.equal(value, written[name].to(value.dtype)):
            raise SystemExit(f"{folder}: {name} must be what transformers loads, got other values")
    return model.eval()


def hub_names(tensors):
    """Tensors of transformers names under their hub names; stacked experts become one tensor per matrix."""
    named = {}
    for name, value in tensors.items():
        for old, new in _RENAMES:
            name = name.replace(old, new)
        stack, _, matrices = name.rpartition(".")
        if matrices == "gate_up_proj":
            for i, expert in enumerate(value):
                named[f"{stack}.{i}.w1.weight"], named[f"{stack}.{i}.w3.weight"] = expert.chunk(2)
        elif matrices == "down_proj":
            named.update({f"{stack}.{i}.w2.weight": expert for i, expert in enumerate(value)})
        else:
            named[name] = value
    return named


class Recorder(contextlib.ExitStack):
    """While entered, keeps the intermediates of one forward pass by the names of tests/golden/README.md. `embedded`
    is the embedded input with its graph."""

    def __init__(self, model):
        super().__init__()
        self.kept, self.embedded = {}, None
        self._of_attention = {}
        trunk = model.model
        self._after(trunk.embed_tokens, self._keep_embedding)
        for i, layer in enumerate(trunk.layers):
            self._watch_layer(f"layers.{i}.", layer)
        self._after(trunk.norm, lambda m, args, out: self._keep("final_hidden", out))
        self._after(model.lm_head, lambda m, args, out: self._keep("logits", out))
        self._attention = modeling.eager_attention_forward
        self.enter_context(mock.patch.object(modeling, "eager_attention_forward", self._watch_attention))

    def _after(self, module, hook):
        self.callback(module.register_forward_hook(hook).remove)

    def _keep(self, name, value):
        self.kept[name] = value.detach()

    def _keep_embedding(self, module, args, out):
        self.embedded = out
        self._keep("embeddings", out)

    def _watch_layer(self, prefix, layer):
        attention, moe = layer.self_attn, layer.mlp
        self._of_attention[attention] = prefix + "attn."
        for site, mixer in (("attn", layer.attn_hc), ("ffn", layer.ffn_hc)):
            self._after(mixer, lambda m, args, out, p=f"{prefix}hc_{site}.": self._keep_mixing(p, m, args[0], out))
        self._after(attention.q_a_norm, lambda m, args, out: self._keep(prefix + "attn.qa", out))
        self._after(attention.o_a_proj, lambda m, args, out: self._keep(
            prefix + "attn.o", args[0].reshape(*args[0].shape[:2], attention.num_heads, -1)))
        self._after(attention, lambda m, args, out: self._keep(prefix + "attn.out", out[0]))
        if attention.compressor is not None:
            self._after(attention.compressor, lambda m, args, out: self._keep(prefix + "attn.slots", out[0].squeeze(1)))
            if hasattr(attention.compressor, "indexer"):
                self._watch_indexer(prefix + "attn.indexer.", attention.compressor.indexer)
        self._after(moe.gate, lambda m, args, out: self._keep_routing(prefix + "ffn.gate.", m, args[0], out))
        self._after(moe, lambda m, args, out: self._keep(prefix + "ffn.out", out))
        self._after(layer, lambda m, args, out: self._keep(prefix + "out", out))

    def _keep_mixing(self, prefix, mixer, streams, out):
        # The module uses its collapsing weights up inside: computed again, and held to the collapsed stream.
        post, comb, collapsed = out
        n = mixer.hc_mult
        mix = F.linear(mixer.input_norm(streams.flatten(2)), mixer.fn[:n])
        pre = torch.sigmoid(mix * mixer.scale[0] + mixer.base[:n]) + mixer.hc_eps
        torch.testing.assert_close((pre.unsqueeze(-1) * streams).sum(2), collapsed, rtol=1e-4, atol=1e-5)
        for name, value in (("pre", pre), ("post", post), ("comb", comb)):
            self._keep(prefix + name, value)

    def _watch_indexer(self, prefix, indexer):
        found = {}

        def scored(module, args, out):
            self._keep(prefix + "k", args[1])
            found["scores"] = out.detach()

        def selected(module, args, out):
            scores = found.pop("scores")
            visible = (torch.arange(scores.shape[1]) + 1) // indexer.compress_rate
            hidden = torch.arange(scores.shape[2]) >= visible.unsqueeze(-1)
            self._keep(prefix + "scores", scores.masked_fill(hidden, float("-inf")))
            last = torch.iinfo(torch.int32).max  # sorts the empty places behind the slots
            slots = out.masked_fill(out < 0, last).sort(-1).values
            self._keep(prefix + "topk", slots.masked_fill(slots == last, -1).to(torch.int32))

        self._after(indexer.scorer, scored)
        self._after(indexer, selected)

    def _keep_routing(self, prefix, gate, hidden, out):
        logits, weights, experts = (value.reshape(*hidden.shape[:2], -1) for value in out)
        experts, order = experts.sort(-1)
        self._keep(prefix + "scores", gate.score_fn(logits))
        self._keep(prefix + "indices", experts.to(torch.int32))
        self._keep(prefix + "weights", weights.gather(-1, order))

    def _watch_attention(self, module, query, key, value, mask, scaling, **rest):
        out, weights = self._attention(module, query, key, value, mask, scaling=scaling, **rest)
        with torch.no_grad():
            scores = query @ key.transpose(2, 3) * scaling
            if mask is not None:
                scores = scores + mask
            sinks = module.sinks.reshape(1, -1, 1, 1).expand(*scores.shape[:3], 1)
            prefix = self._of_attention[module]
            self._keep(prefix + "q", query.transpose(1, 2))
            self._keep(prefix + "kv", key[:, 0, :query.shape[2]])
            self._keep(prefix + "lse", torch.cat([scores, sinks], -1).logsumexp(-1).transpose(1, 2))
            self._keep(prefix + "o_rotated", out)
        return out, weights


def joined(parts, name, topk):
    """One tensor from those of the documents, along the token (or slot) axis; ragged widths padded."""
    if name.endswith("indexer.scores"):
        width = max(part.shape[-1] for part in parts)
        parts = [F.pad(part, (0, width - part.shape[-1]), value=float("-inf")) for part in parts]
    elif name.endswith("indexer.topk"):
        parts = [F.pad(part, (0, topk - part.shape[-1]), value=-1) for part in parts]
    return torch.cat(parts, 1)


def forward(model, ids, lengths):
    """Forward of each document on its own. ids [B,S]. Returns (logits, embedded input of each document with its
    graph, intermediates), all but the second joined."""
    logits, recorders = [], []
    for document in ids.split(lengths, 1):
        with Recorder(model) as recorder, SmallerSlotFirst():
            logits.append(model(input_ids=document, use_cache=False).logits)
        recorders.append(recorder)
    kept = {name: joined([recorder.kept[name] for recorder in recorders], name, model.config.index_topk)
            for name in recorders[0].kept}
    return torch.cat(logits, 1), [recorder.embedded for recorder in recorders], kept


def run(model, ids, labels, lengths):
    """Forward, and gradients of the mean loss. Returns {"forward": by name, "grads": by hub name}."""
    with Float64() if model.dtype is torch.float64 else contextlib.nullcontext():
        logits, embedded, kept = forward(model, ids, lengths)
        token_loss = F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=IGNORED, reduction="none")
        loss = token_loss.sum() / (labels != IGNORED).sum()
    names, values = zip(*model.named_parameters())
    grads = torch.autograd.grad(loss, [*values, *embedded], allow_unused=True)
    kept.update(token_loss=token_loss.detach(), loss=loss.detach().reshape(1))
    trained = {name: grad for name, grad in zip(names, grads) if grad is not None}
    return {"forward": kept, "grads": {**hub_names(trained), "embeddings": torch.cat(grads[len(names):], 1)}}
