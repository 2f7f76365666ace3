#!/usr/bin/env python3
"""Times one training step of the same model in Lethe, transformers and nemo-automodel, interleaved, and prints a table.

    build/peers/bin/python bench/peers/peer_table.py [--programs build-bench/bin] [--seqs 512,1024] [--out FILE.md]

Every contender is a process that has loaded its model and waits; in each round each steps in turn, so a disturbance of
the machine meets them all. A turn lasts --turn-seconds, or one step where that is longer: a step that follows a minute of
waiting for the others is no step of a training run. The first round warms up. Lethe and transformers have the same
weights and token ids: their losses must agree. A turn's figure is the median of its steps, a contender's the median of
its turns; memory is the peak of the resident bytes of the process above those after loading, sampled in the same way in
all of them. The roofline is measured after each length.
--peers none leaves the peers out and needs no packages.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
LARGEST_WITH_PEERS = 4096  # their memory is quadratic
LOSS_SHARE = 1e-4


class Contender:
    """A process that steps when it is told to."""

    def __init__(self, name, command):
        self.name, self.turns, self.loss = name, [], None
        environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "PYTHONDONTWRITEBYTECODE": "1"}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                         stderr=subprocess.PIPE, env=environment)

    def _ask(self, word):
        try:
            self._process.stdin.write(word + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            raise SystemExit(f"peer_table.py: {self.name} ended with {self._process.returncode}:\n"
                             + self._process.stderr.read()[-2000:])
        return json.loads(line)

    def warm_up(self):
        self._turn(0)

    def turn(self, least_seconds):
        self.turns.append(self._turn(least_seconds))
        return self.turns[-1]

    def _turn(self, least_seconds):
        """The seconds of steps that took least_seconds together, or of the one that took longer."""
        steps = []
        while not steps or sum(steps) < least_seconds:
            answer = self._ask("step")
            steps.append(answer["seconds"])
        self.loss = answer["loss"]
        return steps

    def end(self):
        """The median and what the process says at its end."""
        facts = self._ask("end")
        self._process.communicate()
        return {**facts, "median_s": statistics.median(map(statistics.median, self.turns)), "rounds": len(self.turns),
                "loss": self.loss}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, default=Path("build-bench/bin"), help="lethe_step and roofline")
    parser.add_argument("--cache", type=Path, default=Path("build/peers/model"), help="where the weights are made once")
    parser.add_argument("--config", type=Path, default=HERE / "model.json")
    parser.add_argument("--seqs", default="512,1024,2048,4096,8192,16384")
    parser.add_argument("--peers", default="transformers,automodel", help="or 'transformers', or 'none'")
    parser.add_argument("--rounds", type=int, default=5, help="timed turns of each contender; one more warms up (default 5)")
    parser.add_argument("--turn-seconds", type=float, default=20, help="least time of a turn's steps (default 20)")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, help="file to which the tables are appended as Markdown")
    parser.add_argument("--roofline-out", type=Path, help="the same for the roofline of every length, node by node")
    arguments = parser.parse_args()
    arguments.seqs = [int(word) for word in arguments.seqs.split(",")]
    arguments.peers = [] if arguments.peers == "none" else arguments.peers.split(",")
    return arguments


def say(text):
    print(f"peer_table.py: {text}", file=sys.stderr, flush=True)


def make_inputs(arguments):
    """The model folder, which only the peers need, and the token ids; made once."""
    hub = json.loads(arguments.config.read_text())
    arguments.cache.mkdir(parents=True, exist_ok=True)
    if arguments.peers and not (arguments.cache / "config.json").exists():
        say(f"making random weights in {arguments.cache}")
        subprocess.run([sys.executable, HERE / "make_weights.py", arguments.config, arguments.cache], check=True)
    ids = arguments.cache / "ids.txt"
    draw = random.Random(0)
    ids.write_text(" ".join(str(draw.randrange(hub["vocab_size"])) for _ in range(max(arguments.seqs))))
    return ids


def contenders(arguments, seq, ids):
    common = ["--ids", str(ids), "--seq", str(seq), "--threads", str(arguments.threads)]
    weights = ["--model", str(arguments.cache)]
    ours = weights if arguments.peers else ["--config", str(arguments.config)]  # without peers: Lethe's own
    yield Contender("lethe", [str(arguments.programs / "lethe_step"), "--serve", *ours, *common])
    if seq <= LARGEST_WITH_PEERS:
        for peer in arguments.peers:
            yield Contender(peer, [sys.executable, str(HERE / "peer_step.py"), "--peer", peer, *weights, *common])


def roofline(arguments, seq, seconds):
    command = [arguments.programs / "roofline", "--json", "--config", arguments.config, "--seq", str(seq), "--threads",
               str(arguments.threads), "--step-seconds", str(seconds)]
    if arguments.roofline_out:
        command += ["--out", arguments.roofline_out]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure(arguments, seq, ids):
    """{name: facts} of all contenders at one length."""
    running = list(contenders(arguments, seq, ids))
    rounds = arguments.rounds
    for contender in running:
        contender.warm_up()
        say(f"S={seq} {contender.name} is warm")
    for number in range(1, rounds + 1):
        for contender in running:
            steps = contender.turn(arguments.turn_seconds)
            say(f"S={seq} round {number}/{rounds} {contender.name}: {statistics.median(steps):.3f} s "
                f"({' '.join(f'{seconds:.3f}' for seconds in steps)})")
    facts = {contender.name: contender.end() for contender in running}
    facts["roofline"] = roofline(arguments, seq, facts["lethe"]["median_s"])
    return facts


def check_losses(seq, facts):
    if "transformers" not in facts:
        return
    ours, theirs = facts["lethe"]["loss"], facts["transformers"]["loss"]
    if abs(ours - theirs) > LOSS_SHARE * abs(theirs):
        raise SystemExit(f"peer_table.py: the losses at S={seq} must agree to {LOSS_SHARE}, got Lethe {ours} and "
                         f"transformers {theirs}: they do not compute the same")


def row_of(seq, facts):
    ours, floor = facts["lethe"], facts["roofline"]
    seconds, resident = ours["median_s"], ours["peak_bytes_above_model"]

    def against(peer):
        if peer not in facts:
            return ["-"] * 4
        theirs, peak = facts[peer]["median_s"], facts[peer]["peak_bytes_above_model"]
        return [f"{theirs:.2f}", f"{theirs / seconds:.1f}x", f"{peak / 1e9:.2f}", f"{peak / resident:.1f}x"]

    return [str(seq), f"{seconds:.3f}", f"{resident / 1e9:.2f}", f"{ours['allocator_peak_bytes_above_model'] / 1e9:.2f}",
            *against("transformers"), *against("automodel"), f"{floor['roofline_s']:.3f}",
            f"{100 * floor['roofline_s'] / seconds:.0f} %", f"{100 * floor['roofline_mm_s'] / seconds:.0f} %"]


HEADINGS = ["S", "Lethe s", "resident GB", "allocator GB", "transformers s", "ratio", "GB", "ratio", "automodel s", "ratio",
            "GB", "ratio", "roofline s", "of roofline", "of it with at::mm"]


def table(headings, rows, mark=" | "):
    widths = [max(3, *(len(row[i]) for row in [headings, *rows])) for i in range(len(headings))]
    lines = [mark.join(cell.rjust(width) for cell, width in zip(row, widths)) for row in [headings, *rows]]
    if mark == " | ":
        lines = [f"| {line} |" for line in lines]
        lines.insert(1, "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|")
    return "\n".join(lines) + "\n"


def details(results):
    """Losses, rounds and implementations: what the times belong to."""
    rows = []
    for seq, facts in results.items():
        rows.append([str(seq), str(facts["lethe"]["rounds"]), f"{facts['lethe']['loss']:.6f}",
                     f"{facts['transformers']['loss']:.6f}" if "transformers" in facts else "-",
                     f"{facts['roofline']['flops'] / seq / 1e9:.4f}", f"{facts['roofline']['fma_flops'] / 1e9:.1f}",
                     f"{facts['roofline']['triad_bytes'] / 1e9:.1f}"])
    return ["S", "rounds", "loss Lethe", "loss transformers", "GFLOP a token", "FMA peak GFLOP/s", "triad GB/s"], rows


def main():
    arguments = parse_arguments()
    ids = make_inputs(arguments)
    results = {}
    for seq in arguments.seqs:
        results[seq] = measure(arguments, seq, ids)
        check_losses(seq, results[seq])
    rows = [row_of(seq, facts) for seq, facts in results.items()]
    ran = next(iter(results.values()))["lethe"]["implementations"]
    implementations = "Lethe ran: " + ", ".join(f"{op} {how}" for op, how in ran.items()) + "\n"
    threads = f"{arguments.threads} threads; medians of the rounds, turns of at least {arguments.turn_seconds:g} s.\n"
    print("\n" + threads + table(HEADINGS, rows, "  ") + "\n" + table(*details(results), "  ") + "\n" + implementations)
    if arguments.out:
        with arguments.out.open("a") as file:
            file.write(threads + "\n" + table(HEADINGS, rows) + "\n" + table(*details(results)) + "\n" + implementations)


if __name__ == "__main__":
    main()
