#!/usr/bin/env python3
"""Writes a golden directory (tests/golden/README.md) from a DeepSeek-V4 model that transformers can read, for
`lethe compare OUT`: is this model read rightly, and does Lethe compute what transformers computes?

  make_golden.py MODEL OUT [--documents 133,1,4 | --tokens N] [--batch B] [--seed S] [--no-fp64]

MODEL is a folder with config.json and *.safetensors under hub names (OUT/model of `lethe train`, a downloaded
checkpoint) or a name on the hub. Token ids are random; every document is computed on its own. transformers has no
multi-token prediction: OUT describes the model without it.
"""
import argparse
import importlib.metadata
import json
import math
import sys
from pathlib import Path

PIP_LINE = "python3 -m pip install torch==2.11.0 transformers==5.23.0 safetensors"

try:
    import torch
    from safetensors.torch import save_file
    from transformers.utils import logging
    import golden_peer as peer
except (ImportError, OSError, ValueError) as error:  # the latter two: libraries of torch are missing
    sys.exit(f"make_golden.py: needs torch, transformers and safetensors, got '{error}'; install them: {PIP_LINE}")

FORWARD_SHARE = 2e-5  # what `lethe compare` allows a float32 activation to be off, of its rms
SEEDS = 50  # tried until every selection is clear of rounding


def parse_arguments():
    def lengths(text):
        values = [int(part) for part in text.split(",")]
        if min(values) < 1:
            raise ValueError
        return values

    def positive(text):
        if int(text) < 1:
            raise ValueError
        return int(text)

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder of a model, or its name on the hub")
    parser.add_argument("out", type=Path, help="folder to write; must not exist or be empty")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--documents", type=lengths, help="lengths of the documents of every row")
    size.add_argument("--tokens", type=positive, default=260, help="length of one document per row (default 260)")
    parser.add_argument("--batch", type=positive, default=1, help="rows (default 1)")
    parser.add_argument("--seed", type=int, default=1, help="first seed of the token ids that is tried (default 1)")
    parser.add_argument("--no-fp64", action="store_true", help="no float64 run, hence no tolerance.json")
    arguments = parser.parse_args()
    arguments.documents = arguments.documents or [arguments.tokens]
    if max(arguments.documents) < 2:
        parser.error("--documents needs one of 2 tokens or more: a single token has no next one to predict")
    if arguments.out.exists() and (not arguments.out.is_dir() or any(arguments.out.iterdir())):
        parser.error(f"{arguments.out} must not exist or be an empty folder; remove it or choose another")
    return arguments


def model_folder(name):
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download
    return Path(snapshot_download(name, allow_patterns=["config.json", "*.safetensors", "*.safetensors.index.json"]))


def read_config(folder):
    """config.json of a float32 model without multi-token prediction, otherwise as it is."""
    config = json.loads((folder / "config.json").read_text())
    config.update(num_nextn_predict_layers=0, torch_dtype="float32")
    if "compress_ratios" in config:  # also lists the prediction blocks
        config["compress_ratios"] = config["compress_ratios"][:config["num_hidden_layers"]]
    return config


def draw_tokens(config, arguments, seed):
    """Random ids [B,S] and the next token of each as its label; the last of a document has none."""
    shape = arguments.batch, sum(arguments.documents)
    ids = torch.randint(config["vocab_size"], shape, generator=torch.Generator().manual_seed(seed))
    labels = ids.roll(-1, 1)
    labels[:, torch.tensor(arguments.documents).cumsum(0) - 1] = peer.IGNORED
    return ids, labels


def margins(kept, model):
    """Per selecting tensor: smallest distance between the last selected and the first rejected score, of the rms."""
    def gap(scores, count):
        if scores.shape[-1] <= count:
            return math.inf
        top = scores.topk(count + 1, -1).values
        last, rejected = top[..., -2], top[..., -1]
        # Scores of 0 are exact (no head fires) and equal in every program; the smaller slot wins.
        distance = (last - rejected)[rejected.isfinite() & ((last != 0) | (rejected != 0))]
        rms = scores[scores.isfinite()].square().mean().sqrt()
        return (distance.min() / rms).item() if distance.numel() else math.inf

    found = {}
    for i, layer in enumerate(model.model.layers):
        if (name := f"layers.{i}.attn.indexer.scores") in kept:
            found[name] = gap(kept[name], model.config.index_topk)
        if not layer.mlp.is_hash:
            name = f"layers.{i}.ffn.gate.scores"
            found[name] = gap(kept[name] + layer.mlp.gate.e_score_correction_bias, model.config.num_experts_per_tok)
    return {name: margin for name, margin in found.items() if margin < math.inf}


def choose_tokens(model, config, arguments):
    """(seed, ids, labels, margins) of the first seed whose selections no allowed rounding can change."""
    for seed in range(arguments.seed, arguments.seed + SEEDS):
        ids, labels = draw_tokens(config, arguments, seed)
        with torch.no_grad():
            found = margins(peer.forward(model, ids, arguments.documents)[2], model)
        if min(found.values(), default=math.inf) > 2 * FORWARD_SHARE:
            return seed, ids, labels, found
    sys.exit(f"make_golden.py: a selection must be clearer than rounding ({2 * FORWARD_SHARE:.0e} of the scores' rms), "
             f"got {min(found.values()):.1e} in {min(found, key=found.get)} and no better with {SEEDS} seeds; "
             "use fewer tokens")


def deviation(narrow, wide):
    """An entry of tolerance.json: a float32 tensor against its float64 one."""
    if not wide.is_floating_point():
        return {"different": int((narrow != wide).sum())}
    finite = wide.masked_fill(wide.isinf(), 0)
    difference = (narrow.double().masked_fill(wide.isinf(), 0) - finite).abs()
    rms = finite.square().mean().sqrt().item() if wide.numel() else 0.0
    largest = difference.max().item() if wide.numel() else 0.0
    return {"max_abs": largest, "max_rel_rms": largest / rms if rms else 0.0, "rms": rms,
            "norm64": finite.norm().item(), "sum64": finite.sum().item()}


def tolerance(model, tokens, narrow, found):
    """tolerance.json by the same run in float64. Widens the model."""
    wide = peer.run(model.double(), *tokens)
    parts = {part: {name: deviation(value, wide[part][name]) for name, value in sorted(narrow[part].items())}
             for part in ("forward", "grads")}
    for part in parts.values():
        for name, entry in part.items():
            if entry.get("different") or not math.isfinite(entry.get("max_abs", 0)):
                sys.exit(f"make_golden.py: {name} must be finite and select the same in float32 and float64, got "
                         f"{entry}; try another --seed or fewer tokens")
    return {"margins": found, **parts}


def write(out, tensors, documents):
    """tensors: file stem -> tensors by name; documents: file stem -> JSON."""
    out.mkdir(parents=True, exist_ok=True)
    for stem, named in tensors.items():
        save_file({name: value.detach().clone().contiguous() for name, value in sorted(named.items())},
                  out / f"{stem}.safetensors", metadata={"format": "pt"})
    for stem, value in documents.items():
        (out / f"{stem}.json").write_text(json.dumps(value, indent=1) + "\n")


def main():
    arguments = parse_arguments()
    logging.disable_progress_bar()
    torch.use_deterministic_algorithms(True)
    folder = model_folder(arguments.model)
    config = read_config(folder)
    model = peer.load(folder)
    seed, ids, labels, found = choose_tokens(model, config, arguments)
    tokens = ids, labels, arguments.documents
    narrow = peer.run(model, *tokens)
    tensors = {"weights": {name: value.clone() for name, value in peer.hub_names(model.state_dict()).items()},
               "inputs": {"ids": ids, "labels": labels}, **narrow}
    packages = ("torch", "transformers", "safetensors")
    documents = {"config": config,
                 "run": {"seed": seed, "batch": arguments.batch, "documents": arguments.documents,
                         "label_mask_fraction": 0.0, "mtp_loss_weight": 0.0,
                         "produced_by": {name: importlib.metadata.version(name).split("+")[0] for name in packages}}}
    if not arguments.no_fp64:
        documents["tolerance"] = tolerance(model, tokens, narrow, found)
    write(arguments.out, tensors, documents)
    print(f"wrote {arguments.out}: {ids.numel()} tokens (seed {seed}), {len(narrow['forward'])} intermediates, "
          f"{len(narrow['grads'])} gradients, loss {narrow['forward']['loss'].item():.6f}\n"
          f"next: lethe compare {arguments.out}")


if __name__ == "__main__":
    main()
