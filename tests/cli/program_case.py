"""What the tests of the program share. Needs LETHE_PROGRAM=path of bin/lethe."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

PROGRAM = os.environ["LETHE_PROGRAM"]
ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
# A model small enough to train in seconds; every layer type and MTP stay in it.
SMALL = ["--recipe", "tiny", "--threads", "1", "--seq-length", "64", "--micro-batch-size", "2",
         "--global-batch-size", "2", "--eval-iters", "2", "--lr-warmup-iters", "0"]


def lethe(*words, **kwargs):
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, errors="replace", timeout=300, **kwargs)


class ProgramCase(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lethe_program_"))
        self.addCleanup(shutil.rmtree, self.folder, True)

    def train(self, *words, out="run"):
        return lethe("train", *SMALL, "--output", self.folder / out, *words)

    def refused(self, result, code, *mentions):
        self.assertEqual(result.returncode, code, result.stderr)
        for text in mentions:
            self.assertIn(text, result.stderr)

    def events(self, out, name):
        lines = (self.folder / out / "run.jsonl").read_text().splitlines()
        return [e for e in map(json.loads, lines) if e["event"] == name]

    def record(self, out="run"):
        """The record without the fields of time."""
        lines = [json.loads(line) for line in (self.folder / out / "run.jsonl").read_text().splitlines()]
        return [{k: v for k, v in line.items() if k not in ("tokens_per_second", "seconds")} for line in lines]

    def steps(self, out):
        return [line for line in self.record(out) if line["event"] == "step"]
