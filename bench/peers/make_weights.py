#!/usr/bin/env python3
"""Writes a model folder that Lethe and transformers both read: make_weights.py CONFIG.json OUT. Random weights."""
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers.models.deepseek_v4 import DeepseekV4Config, DeepseekV4ForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from golden_peer import hub_names


def random_model(hub):
    """The model as transformers initialises it, and what it leaves at zero drawn too: with hash rows of one expert
    and mixing scales of 0 a step would leave out work that training does."""
    torch.manual_seed(0)
    model = DeepseekV4ForCausalLM(DeepseekV4Config(**hub))
    with torch.no_grad():
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            if name.endswith("tid2eid"):
                rows, width = value.shape
                spread = torch.arange(rows)[:, None] * width + torch.arange(width)
                value.copy_(spread % hub["n_routed_experts"])
            elif name.endswith((".scale", ".base", ".sinks", ".position_bias")):
                value.normal_(0, 0.1)
    return model


def write(hub, folder):
    folder.mkdir(parents=True, exist_ok=True)
    named = hub_names(random_model(hub).state_dict())
    save_file({name: value.contiguous() for name, value in named.items()}, folder / "model.safetensors",
              metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps({"architectures": ["DeepseekV4ForCausalLM"], **hub}, indent=2))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    write(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
