"""The program as a user meets it: exit codes, messages, files. Needs LETHE_PROGRAM=path of bin/lethe."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

PROGRAM = os.environ["LETHE_PROGRAM"]
ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
# A model small enough to train in seconds; every layer type and MTP stay in it.
SMALL = ["--recipe", "tiny", "--threads", "1", "--seq-length", "64", "--micro-batch-size", "2",
         "--global-batch-size", "2", "--eval-iters", "2", "--lr-warmup-iters", "0"]


def lethe(*words, **kwargs):
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, errors="replace", timeout=300, **kwargs)


class ProgramTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lethe_program_"))
        self.addCleanup(shutil.rmtree, self.folder, True)

    def train(self, *words, out="run"):
        return lethe("train", *SMALL, "--output", self.folder / out, *words)

    def refused(self, result, code, *mentions):
        self.assertEqual(result.returncode, code, result.stderr)
        for text in mentions:
            self.assertIn(text, result.stderr)

    def test_help_teaches_and_names_the_commands(self):
        result = lethe("--help")
        self.assertEqual(result.returncode, 0)
        for command in ("train", "generate", "compare", "docs"):
            self.assertIn(command, result.stdout)
        self.assertIn("--seq-length", lethe("train", "--help").stdout)

    def test_unknown_flag_names_the_nearest(self):
        self.refused(self.train("--train-iter", 3, "--sed", 4), 2, "--train-iter", "--seed")

    def test_known_but_not_built_flag_says_so(self):
        self.refused(self.train("--train-iters", 1, "--recompute-csa-attention"), 2, "recompute-csa-attention", "not")

    def test_impossible_sizes_are_all_listed(self):
        result = self.train("--train-iters", 1, "--o-groups", 3, "--moe-router-topk", 99)
        self.refused(result, 2, "o_groups", "99")

    def test_printed_config_resolves_to_itself(self):
        first = lethe("train", *SMALL, "--train-iters", 7, "--print-config")
        self.assertEqual(first.returncode, 0, first.stderr)
        path = self.folder / "a.toml"
        path.write_text(first.stdout)
        second = lethe("train", "--config", path, "--print-config")
        self.assertEqual(second.returncode, 0, second.stderr)
        strip = lambda text: [line.split("#")[0].strip() for line in text.splitlines() if "=" in line.split("#")[0]]
        self.assertEqual(strip(first.stdout), strip(second.stdout))

    def test_dry_run_prints_sizes_and_starts_nothing(self):
        result = lethe("train", "--recipe", "flash", "--global-batch-size", 1, "--micro-batch-size", 1, "--train-iters", 3000,
                       "--dsa-indexer-loss-coeff", 0.01, "--output", self.folder / "run", "--dry-run")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("290942289362", result.stdout)
        self.assertFalse((self.folder / "run").exists())

    def test_text_shorter_than_a_sequence(self):
        text = self.folder / "short.txt"
        text.write_text("too short")
        self.refused(self.train("--train-iters", 1, "--data", text), 4, "seq")
        self.assertFalse((self.folder / "run").exists())

    def test_missing_text(self):
        self.refused(self.train("--train-iters", 1, "--data", self.folder / "absent"), 4, "absent")

    def test_unwritable_output(self):
        blocker = self.folder / "file"
        blocker.write_text("")
        self.refused(lethe("train", *SMALL, "--train-iters", 1, "--output", blocker / "run"), 4, str(blocker))

    def test_existing_run_is_kept(self):
        self.assertEqual(self.train("--train-iters", 1).returncode, 0)
        before = (self.folder / "run" / "run.jsonl").read_bytes()
        self.refused(self.train("--train-iters", 1), 2, "--overwrite")
        self.assertEqual((self.folder / "run" / "run.jsonl").read_bytes(), before)
        self.assertEqual(self.train("--train-iters", 2, "--overwrite").returncode, 0)
        events = [json.loads(line)["event"] for line in (self.folder / "run" / "run.jsonl").read_text().splitlines()]
        self.assertEqual(events, ["start", "step", "step", "eval", "end"])

    def test_a_run_leaves_record_model_report_and_a_sample(self):
        result = self.train("--train-iters", 3, "--eval-interval", 2)
        self.assertEqual(result.returncode, 0, result.stderr)
        run = self.folder / "run"
        events = [json.loads(line)["event"] for line in (run / "run.jsonl").read_text().splitlines()]
        self.assertEqual(events, ["start", "step", "step", "eval", "step", "eval", "end"])
        self.assertTrue('id="chart-data"' in (run / "report.html").read_text())
        sample = lethe("generate", run / "model", "--prompt", "KING", "--max-new-tokens", 5, "--seed", 1)
        self.assertEqual(sample.returncode, 0, sample.stderr)
        self.assertTrue(sample.stdout.startswith("KING"))
        self.assertEqual(sorted(p.name for p in run.iterdir()), ["model", "report.html", "run.jsonl"])

    def test_a_hub_configuration_trains_and_keeps_its_other_keys(self):
        config = json.loads((GOLDEN / "T" / "config.json").read_text())
        (self.folder / "config.json").write_text(json.dumps({**config, "my_note": "stays"}))
        result = lethe("train", "--hf-config", self.folder, "--train-iters", 1, "--lr", 1e-3, "--lr-warmup-iters", 0,
                       "--dsa-indexer-loss-coeff", 0.01, "--seq-length", 64, "--micro-batch-size", 1,
                       "--global-batch-size", 1, "--eval-iters", 1, "--output", self.folder / "run")
        self.assertEqual(result.returncode, 0, result.stderr)
        written = json.loads((self.folder / "run" / "model" / "config.json").read_text())
        self.assertEqual(written["my_note"], "stays")
        self.assertEqual(written["compress_ratios"], config["compress_ratios"])

    def test_two_runs_give_the_same_weights(self):
        for out in ("a", "b"):
            self.assertEqual(self.train("--train-iters", 3, out=out).returncode, 0)
        a, b = ((self.folder / out / "model" / "model.safetensors").read_bytes() for out in ("a", "b"))
        self.assertEqual(a, b)

    def test_interrupt_ends_cleanly_with_the_conventional_code(self):
        process = subprocess.Popen([PROGRAM, "train", *SMALL, "--train-iters", "100000", "--output", str(self.folder / "run")],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for line in process.stdout:
            if line.startswith("step"):
                break
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=240)
        self.assertEqual(process.returncode, 130)
        self.assertTrue((self.folder / "run" / "model" / "model.safetensors").exists())
        last = (self.folder / "run" / "run.jsonl").read_text().splitlines()[-1]
        self.assertEqual(json.loads(last)["reason"], "signal")

    def test_max_seconds_ends_the_run(self):
        begin = time.monotonic()
        result = self.train("--train-iters", 100000, "--max-seconds", 2)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertLess(time.monotonic() - begin, 120)

    def test_a_diverging_run_keeps_the_last_good_model(self):
        result = self.train("--train-iters", 50, "--lr", "1e30", "--min-lr", "1e30", "--clip-grad", 0)
        self.refused(result, 6, "finite")
        self.assertTrue((self.folder / "run" / "model" / "config.json").exists())

    def copy_of_v(self):
        folder = self.folder / "V"
        shutil.copytree(GOLDEN / "V", folder)
        return folder

    def test_compare_exits_1_on_a_miss_and_0_without(self):
        self.assertEqual(lethe("compare", GOLDEN / "V").returncode, 0)
        folder = self.copy_of_v()
        data = bytearray((folder / "weights.safetensors").read_bytes())
        data[-5:] = b"\x00\x00\x80\x3f\x00"
        (folder / "weights.safetensors").write_bytes(data)
        result = lethe("compare", folder, "--json")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(json.loads(result.stdout)[0]["verdict"], "MISS")

    def test_truncated_weights_are_refused(self):
        folder = self.copy_of_v()
        data = (folder / "weights.safetensors").read_bytes()
        (folder / "weights.safetensors").write_bytes(data[:-100])
        self.refused(lethe("compare", folder), 4, "E-ST-")

    def test_missing_mandatory_key_is_named(self):
        folder = self.copy_of_v()
        config = json.loads((folder / "config.json").read_text())
        del config["compress_rope_theta"]
        (folder / "config.json").write_text(json.dumps(config))
        self.refused(lethe("compare", folder), 2, "compress_rope_theta")


if __name__ == "__main__":
    unittest.main()
