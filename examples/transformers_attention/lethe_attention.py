"""Lethe's sparse attention as the attention of transformers' DeepSeek-V4 model.

    import lethe_attention
    lethe_attention.register("build/lib/liblethe.so")
    model = DeepseekV4ForCausalLM.from_pretrained(folder, attn_implementation="lethe")

Queries read their window and the slots that the compressor and the indexer allow; nothing of size [S, S] is computed,
though transformers still builds its mask. Full rows without padding and without a cache of earlier tokens.
"""
import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask


def register(library):
    """Loads liblethe.so and makes attn_implementation="lethe" known. The torch of this Python must be the one that
    the library was built with."""
    torch.ops.load_library(library)
    AttentionInterface.register("lethe", attention)
    AttentionMaskInterface.register("lethe", eager_mask)


def attention(module, query, key, value, attention_mask, scaling, dropout=0.0, **_):
    """What modeling_deepseek_v4.eager_attention_forward computes. query [B,H,S,D]; key = value [B,1,S+C,D], the rows of
    the tokens and behind them the C slots of the layer's compressor. Returns ([B,S,H,D], None)."""
    batch, heads, tokens, width = query.shape
    slots = key.shape[2] - tokens
    _check(module, attention_mask, tokens, slots, dropout)
    rows = key.squeeze(1)
    indices = None
    if slots and module.layer_type == "compressed_sparse_attention":
        indices = _visible(attention_mask[:, 0, :, tokens:], module.config.index_topk)
    # The rows of the batch are documents of one packed row.
    starts = torch.arange(0, (batch + 1) * tokens, tokens, dtype=torch.int32)
    out, _lse, _mass = torch.ops.lethe.sparse_attention(
        query.transpose(1, 2).reshape(batch * tokens, heads, width),
        rows[:, :tokens].reshape(batch * tokens, width),
        rows[:, tokens:].reshape(batch * slots, width) if slots else None,
        indices, module.sinks, starts, None, None,  # the model rotates the output back itself
        module.sliding_window, _ratio(module) if slots else 0, scaling, False)
    return out.view(batch, tokens, heads, width), None


def _ratio(module):
    return module.config.compress_rates[module.layer_type]


def _visible(bias, most):
    """int32 [B*S, k]: the slots that the indexer chose for every query, as rows of all slots of the batch, ascending,
    then -1. bias [B,S,C]: 0 where chosen, else -inf."""
    batch, _, slots = bias.shape
    places = torch.arange(slots).expand_as(bias)
    chosen = places.masked_fill(bias != 0, slots).sort(-1).values[..., :most]
    first = slots * torch.arange(batch).view(-1, 1, 1)
    return torch.where(chosen < slots, chosen + first, -1).flatten(0, 1).to(torch.int32)


def _check(module, mask, tokens, slots, dropout):
    if dropout:
        raise ValueError(f"lethe_attention: attention_dropout must be 0, got {dropout}; set it in the config")
    if mask is None or mask.shape[-2:] != (tokens, tokens + slots):
        raise ValueError(f"lethe_attention: needs rows of {tokens} tokens without a cache, got a mask of "
                         f"{None if mask is None else tuple(mask.shape)}; call the model with use_cache=False")
    distance = torch.arange(tokens).view(-1, 1) - torch.arange(tokens)
    window = (distance >= 0) & (distance < module.sliding_window)
    if not torch.equal((mask[:, :, :, :tokens] == 0), window.expand(mask.shape[0], 1, -1, -1)):
        raise ValueError("lethe_attention: takes rows without padding, got a mask that hides more than the window "
                         "does; give every row its full length")
