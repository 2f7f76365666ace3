#!/usr/bin/env python3
"""One peer of the peer benchmark: loads its DeepSeek-V4 once, then steps (forward + backward, CPU, float32) on demand.

    peer_step.py --peer transformers|automodel --model DIR --ids FILE --seq 2048 [--threads 2]

Reads lines from standard input: "step" runs one step and answers {"seconds", "loss"}; "end" answers {"peer",
"parameters", "peak_bytes_above_model"} and leaves. build/bin/lethe_step --serve speaks the same. transformers loads the
weights of DIR; automodel cannot and draws its own, so its loss is not comparable.
"""
import argparse
import json
import resource
import sys
import threading
import time
from pathlib import Path


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


class ResidentWatch(threading.Thread):
    """The highest resident bytes, sampled every 2 ms."""

    def __init__(self):
        super().__init__(daemon=True)
        self.peak, self._done = 0, threading.Event()

    def run(self):
        while not self._done.wait(0.002):
            self.peak = max(self.peak, resident_bytes())

    def finish(self):
        self._done.set()
        self.join()
        return self.peak


def transformers_model(folder):
    import torch
    from transformers.models.deepseek_v4 import DeepseekV4ForCausalLM

    model = DeepseekV4ForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    return model, lambda ids: model(input_ids=ids, labels=ids, use_cache=False).loss


def automodel_model(folder):
    import torch
    from nemo_automodel.components.models.common import BackendConfig
    from nemo_automodel.components.models.deepseek_v4.config import DeepseekV4Config
    from nemo_automodel.components.models.deepseek_v4.model import DeepseekV4ForCausalLM

    hub = json.loads((folder / "config.json").read_text())
    config = DeepseekV4Config(**{key: value for key, value in hub.items() if key not in ("architectures", "model_type")})
    torch_only = BackendConfig(attn="eager", linear="torch", rms_norm="torch_fp32", experts="torch", dispatcher="torch",
                               rope_fusion=False)
    model = DeepseekV4ForCausalLM(config, backend=torch_only)
    experts = hub["n_routed_experts"]
    with torch.no_grad():  # the constructor leaves some of it as the memory was
        for value in model.parameters():
            value.fill_(1.0) if value.dim() < 2 else value.normal_(0, hub["initializer_range"])
        for value in model.buffers():
            if value.dim() == 2 and value.dtype in (torch.int32, torch.int64):  # a hash table: distinct experts a row
                rows, width = value.shape
                value.copy_((torch.arange(rows)[:, None] * width + torch.arange(width)) % experts)
    model = model.to(torch.float32)

    def loss_of(ids):
        out = model(input_ids=ids)
        logits = getattr(out, "logits", out)
        return torch.nn.functional.cross_entropy(logits[:, :-1].float().flatten(0, 1), ids[:, 1:].flatten())

    return model, loss_of


def step(model, loss_of, ids):
    start = time.perf_counter()
    loss = loss_of(ids)
    loss.backward()
    seconds = time.perf_counter() - start
    value = float(loss.detach())
    del loss
    model.zero_grad(set_to_none=True)
    return {"seconds": seconds, "loss": value}


def serve(arguments):
    import torch

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    build = {"transformers": transformers_model, "automodel": automodel_model}[arguments.peer]
    model, loss_of = build(arguments.model)
    model.train()
    ids = torch.tensor([[int(word) for word in arguments.ids.read_text().split()[:arguments.seq]]])
    parameters = sum(value.numel() for value in model.parameters())
    base, watch = resident_bytes(), ResidentWatch()
    watch.start()
    for line in sys.stdin:
        if line.strip() != "step":
            break
        yield step(model, loss_of, ids)
    yield {"peer": arguments.peer, "parameters": parameters, "peak_bytes_above_model": watch.finish() - base}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", choices=("transformers", "automodel"), required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--ids", type=Path, required=True)
    parser.add_argument("--seq", type=int, required=True)
    parser.add_argument("--threads", type=int, default=2)
    answers, sys.stdout = sys.stdout, sys.stderr  # what packages print is no answer
    for answer in serve(parser.parse_args()):
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
