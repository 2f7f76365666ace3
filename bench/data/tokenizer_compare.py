#!/usr/bin/env python3
"""Speed of Lethe's tokenizer beside that of the library `tokenizers`, one thread each, the same whole texts, in turn.
  tokenizer_compare.py BENCH_TOKENIZER TOKENIZER.json [ROUNDS]
Texts: Shakespeare, the sources of this repository in one text, and generated Chinese. Prints the median of the rounds
(at least 5) in MB of text per CPU second: `encode`, and `encode_batch_fast` (no offsets) of one text, the library's best."""
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tokenizers  # noqa: E402  (reads the variable)

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("*.h", "*.cpp", "*.py", "*.md", "*.txt", "*.cmake")


def repository_text():
    listed = subprocess.run(["git", "ls-files", "-z", *SOURCES], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    names = [name for name in listed.decode().split("\0") if name and not name.startswith("examples/data/")]
    return "".join((ROOT / name).read_text(errors="ignore") for name in names)


def chinese_text():
    """Words of one to four characters, Zipf-distributed over 20,000, in clauses between punctuation."""
    rng = random.Random(1)
    words = ["".join(chr(0x4E00 + int(3000 * rng.random() ** 2)) for _ in range(rng.randint(1, 4))) for _ in range(20_000)]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    drawn = iter(rng.choices(words, weights, k=250_000))
    clauses = []
    for word in drawn:
        clause = word + "".join(next(drawn, "") for _ in range(rng.randint(1, 8)))
        clauses.append(clause + rng.choice("\uff0c\uff0c\u3002\u3001\n"))
    return "".join(clauses)


def seconds(run):
    begin = time.process_time()  # as Google Benchmark counts: other work on the machine is left out
    run()
    return time.process_time() - begin


def ours(program, tokenizer, path):
    answer = subprocess.run([program, tokenizer, path, "--benchmark_format=json", "--benchmark_min_time=0.3"],
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
    return json.loads(answer)["benchmarks"][0]["bytes_per_second"] / 1e6


def main():
    program, tokenizer = sys.argv[1:3]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    oracle = tokenizers.Tokenizer.from_file(tokenizer)
    texts = {"shakespeare": (ROOT / "examples/data/shakespeare.txt").read_text(), "repository": repository_text(),
             "chinese": chinese_text()}
    print(f"tokenizers {tokenizers.__version__}, median of {rounds} rounds, MB/s\n"
          f"{'text':<12} {'MB':>6} {'lethe':>8} {'encode':>8} {'fast':>8} {'ratio':>7} {'to fast':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts.items():
            path = Path(folder) / name
            path.write_bytes(text.encode())
            size = path.stat().st_size / 1e6
            rates = {"lethe": [], "encode": [], "fast": []}
            for _ in range(rounds):
                rates["lethe"].append(ours(program, tokenizer, path))
                rates["encode"].append(size / seconds(lambda: oracle.encode(text, add_special_tokens=False)))
                rates["fast"].append(size / seconds(lambda: oracle.encode_batch_fast([text], add_special_tokens=False)))
            lethe, encode, fast = (statistics.median(rates[key]) for key in ("lethe", "encode", "fast"))
            print(f"{name:<12} {size:6.2f} {lethe:8.2f} {encode:8.2f} {fast:8.2f} {lethe / encode:7.2f} {lethe / fast:8.2f}")


if __name__ == "__main__":
    main()
