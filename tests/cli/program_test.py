"""The program as a user meets it: exit codes, messages, files. Needs LETHE_PROGRAM=path of bin/lethe."""

import json
import pathlib
import resource
import shutil
import signal
import subprocess
import time
import unittest

from program_case import GOLDEN, PROGRAM, SMALL, ProgramCase, lethe


class ProgramTest(ProgramCase):
    def test_help_teaches_and_names_the_commands(self):
        result = lethe("--help")
        self.assertEqual(result.returncode, 0)
        for command in ("train", "data prepare", "tokenize", "runs", "generate", "compare", "units", "docs"):
            self.assertIn(command, result.stdout)
        self.assertIn("--seq-length", lethe("train", "--help").stdout)

    def test_unknown_flag_names_the_nearest(self):
        self.refused(self.train("--train-iter", 3, "--sed", 4), 2, "--train-iter", "--seed")

    def test_known_but_not_built_flag_says_so(self):
        self.refused(self.train("--train-iters", 1, "--context-parallel-size", 2), 2, "context-parallel-size", "not-built")

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
        self.assertEqual(events, ["start", "operators", "step", "step", "eval", "end"])

    def test_a_run_leaves_record_model_report_and_a_sample(self):
        result = self.train("--train-iters", 3, "--eval-interval", 2)
        self.assertEqual(result.returncode, 0, result.stderr)
        run = self.folder / "run"
        events = [json.loads(line)["event"] for line in (run / "run.jsonl").read_text().splitlines()]
        self.assertEqual(events, ["start", "operators", "step", "step", "eval", "step", "eval", "end"])
        self.assertTrue('id="chart-data"' in (run / "report.html").read_text())
        sample = lethe("generate", run / "model", "--prompt", "KING", "--max-new-tokens", 5, "--seed", 1)
        self.assertEqual(sample.returncode, 0, sample.stderr)
        self.assertTrue(sample.stdout.startswith("KING"))
        self.assertEqual(sorted(p.name for p in run.iterdir() if not p.name.startswith(".")),
                         ["checkpoints", "model", "report.html", "run.jsonl", "sessions.jsonl", "tensorboard"])

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

    def test_the_kernels_are_chosen_printed_and_recorded(self):
        steps = ["--train-iters", 3]
        by_default = self.train(*steps, out="fused")
        self.assertEqual(by_default.returncode, 0, by_default.stderr)
        self.assertIn("kernels fused (", by_default.stdout)
        ran = self.events("fused", "operators")[0]["ran"]
        self.assertTrue(all(how.startswith("fused (") for how in ran.values()), ran)
        self.assertIn("sparse_attention", ran)
        plain = self.train(*steps, "--dsa-kernel-backend", "none", out="plain")
        self.assertIn("kernels none", plain.stdout)
        self.assertEqual(set(self.events("plain", "operators")[0]["ran"].values()), {"reference"})
        self.assertEqual(self.train(*steps, "--operator-implementation", "rms_norm=none", out="mixed").returncode, 0)
        self.assertEqual(self.events("mixed", "operators")[0]["ran"]["rms_norm"], "reference")
        losses = [[e["loss"] for e in self.events(out, "step")] for out in ("fused", "plain", "mixed")]
        for other in losses[1:]:
            for a, b in zip(losses[0], other):
                self.assertAlmostEqual(a, b, delta=1e-4)

    def test_a_kernel_that_is_not_built_is_refused_with_nothing_written(self):
        self.refused(self.train("--train-iters", 1, "--dsa-kernel-backend", "cudnn"), 2, "cudnn", "auto, none, fused")
        self.refused(self.train("--train-iters", 1, "--operator-implementation", "rms_nrom=none"), 2, "did you mean 'rms_norm'")
        self.refused(lethe("compare", GOLDEN / "T", "--dtype", "fp64", "--dsa-kernel-backend", "fused"), 2, "fp64", "float32")
        self.assertFalse((self.folder / "run").exists())

    def test_a_resume_under_other_kernels_says_so(self):
        self.train("--train-iters", 4, "--exit-interval", 2)
        load = ["--load", self.folder / "run" / "checkpoints"]
        self.refused(lethe("train", *load, "--dsa-kernel-backend", "none"), 2, "dsa-kernel-backend")
        result = lethe("train", *load, "--dsa-kernel-backend", "none", "--allow-setting-changes")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("written with the kernels 'fused (", result.stderr)
        self.assertEqual([e["step"] for e in self.events("run", "operators")], [1, 3])

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

    def test_a_stopped_run_goes_on_as_if_it_had_not_been(self):
        self.assertEqual(self.train("--train-iters", 6, "--eval-interval", 4, out="whole").returncode, 0)
        first = self.train("--train-iters", 6, "--eval-interval", 4, "--exit-interval", 3)
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertIn("lethe train --load", first.stdout)
        second = lethe("train", "--load", self.folder / "run" / "checkpoints")
        self.assertEqual(second.returncode, 0, second.stderr)
        self.assertEqual(self.record(), self.record("whole"))
        self.assertEqual(*((self.folder / out / "model" / "model.safetensors").read_bytes() for out in ("run", "whole")))
        sessions = [json.loads(line) for line in (self.folder / "run" / "sessions.jsonl").read_text().splitlines()]
        self.assertEqual([s["event"] for s in sessions],
                         ["started", "saved", "stopped", "resumed", "saved", "stopped"])
        listed = json.loads(lethe("runs", self.folder, "--json").stdout)
        self.assertEqual([run["status"] for run in listed], ["finished", "finished"])
        compared = lethe("runs", "--compare", self.folder / "run", self.folder / "whole")
        self.assertIn("identical", compared.stdout)

    def test_a_checkpoint_of_another_configuration_names_the_keys(self):
        self.assertEqual(self.train("--train-iters", 4, "--exit-interval", 1).returncode, 0)
        load = ["train", "--load", self.folder / "run" / "checkpoints"]
        before = (self.folder / "run" / "run.jsonl").read_bytes()
        self.refused(lethe(*load, "--hidden-size", 32, "--lr", 1), 2, "hidden_size", "--lr", "E-CKPT-CONFIG")
        self.assertEqual((self.folder / "run" / "run.jsonl").read_bytes(), before)
        changed = lethe(*load, "--lr", 1e-3, "--allow-setting-changes")
        self.assertEqual(changed.returncode, 0, changed.stderr)

    def test_nothing_to_load_is_no_new_run(self):
        self.refused(self.train("--train-iters", 1, "--load", ""), 2, "--load")
        self.refused(self.train("--train-iters", 1, "--load", self.folder / "none"), 4, "E-CKPT-NONE")
        self.assertEqual(self.train("--train-iters", 1).returncode, 0)
        self.refused(lethe("train", "--load", self.folder / "run"), 4, "did you mean --load")

    def test_the_indexer_can_be_trained_in_a_later_phase(self):
        first = self.train("--train-iters", 4, "--exit-interval", 2, "--indexer-loss", "off", "--csa-attention", "dense")
        self.assertEqual(first.returncode, 0, first.stderr)
        phase = ["--indexer-loss", "dense", "--dsa-indexer-loss-coeff", 0.01, "--csa-attention", "sparse"]
        load = ["train", "--load", self.folder / "run" / "checkpoints"]
        self.refused(lethe(*load, *phase), 2, "indexer_loss", "--allow-setting-changes")
        second = lethe(*load, *phase, "--allow-setting-changes")
        self.assertEqual(second.returncode, 0, second.stderr)
        self.assertIn("begins anew", second.stderr)
        resumed = [json.loads(line) for line in (self.folder / "run" / "sessions.jsonl").read_text().splitlines()
                   if '"resumed"' in line]
        self.assertEqual(resumed[0]["changed"]["csa_attention"], ['"dense"', '"sparse"'])

    def test_a_damaged_checkpoint_is_named_and_an_older_one_only_taken_on_request(self):
        self.assertEqual(self.train("--train-iters", 4, "--save-interval", 2).returncode, 0)
        saved = self.folder / "run" / "checkpoints"
        data = bytearray((saved / "step-0000000004" / "w-00000-of-00001.safetensors").read_bytes())
        data[-1] ^= 1
        (saved / "step-0000000004" / "w-00000-of-00001.safetensors").write_bytes(data)
        self.refused(lethe("train", "--load", saved), 4, "step-0000000004", "E-CKPT-CRC", "--allow-fallback-checkpoint")
        result = lethe("train", "--load", saved, "--allow-fallback-checkpoint")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("going on from step-0000000002", result.stderr)
        again = lethe("train", "--load", saved)  # the damaged one was replaced
        self.assertEqual(again.returncode, 0, again.stderr)

    def test_a_second_trainer_is_told_who_is_at_work(self):
        process = subprocess.Popen([PROGRAM, "train", *SMALL, "--train-iters", "100000", "--save-interval", "1",
                                    "--output", str(self.folder / "run")], stdout=subprocess.PIPE, text=True)
        for line in process.stdout:
            if line.startswith("saved"):
                break
        try:
            load = self.folder / "run" / "checkpoints"
            self.refused(lethe("train", "--load", load), 4, str(process.pid))
        finally:
            process.kill()
            process.communicate()

    def test_a_second_signal_ends_the_process_at_once(self):
        long_steps = [*SMALL]
        long_steps[long_steps.index("--global-batch-size") + 1] = "400"
        process = subprocess.Popen([PROGRAM, "train", *long_steps, "--train-iters", "100000",
                                    "--output", str(self.folder / "run")], stdout=subprocess.PIPE, text=True)
        for line in process.stdout:
            if line.startswith("run"):
                break
        time.sleep(1)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        self.assertIn(process.returncode, (-signal.SIGTERM, 128 + signal.SIGTERM))

    def test_a_full_disk_keeps_the_last_checkpoint(self):
        self.assertEqual(self.train("--train-iters", 6, "--save-interval", 2, "--exit-interval", 2).returncode, 0)

        def limited():  # smaller than a checkpoint, larger than the record
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        saved = self.folder / "run" / "checkpoints"
        for flags in ([], ["--async-save"], ["--save-failure", "fatal"]):
            result = lethe("train", "--load", saved, *flags, preexec_fn=limited)
            self.refused(result, 4, str(saved), "File too large")
            self.assertEqual((saved / "LATEST").read_text(), "step-0000000002\n")
            self.assertEqual([p.name for p in saved.iterdir() if p.name.startswith(".tmp")], [])
            last = json.loads((self.folder / "run" / "sessions.jsonl").read_text().splitlines()[-1])
            # "continue" trains on and fails at the end; "fatal" stops at the first save that fails.
            self.assertEqual((last["reason"], last["step"]), ("error", 4 if "fatal" in flags else 6))
        result = lethe("train", "--load", saved)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_retention_and_sums_are_those_that_were_asked_for(self):
        result = self.train("--train-iters", 5, "--save-interval", 1, "--save-retain-interval", 2, "--keep-last", 1,
                            "--checkpoint-integrity", "sha256")
        self.assertEqual(result.returncode, 0, result.stderr)
        saved = self.folder / "run" / "checkpoints"
        self.assertEqual(sorted(p.name for p in saved.glob("step-*")), [f"step-{step:010d}" for step in (2, 4, 5)])
        manifest = json.loads((saved / "step-0000000005" / "manifest.json").read_text())["manifest"]
        self.assertTrue(all(len(file["sha256"]) == 64 for file in manifest["files"]))

    def test_schedules_reach_the_steps(self):
        flags = ["--train-iters", 5, "--lr", 1e-3, "--valid-fraction", 0, "--lr-decay-style"]
        self.assertEqual(self.train(*flags, "constant", out="constant").returncode, 0)
        wsd = self.train(*flags, "WSD", "--lr-wsd-decay-iters", 2, "--lr-wsd-decay-style", "linear", "--min-lr", 1e-4,
                         out="WSD")
        self.assertEqual(wsd.returncode, 0, wsd.stderr)
        self.assertEqual([step["lr"] for step in self.steps("constant")], [1e-3] * 5)
        self.assertEqual([round(step["lr"], 9) for step in self.steps("WSD")], [1e-3, 1e-3, 1e-3, 5.5e-4, 1e-4])

    def test_the_mtp_weight_changes_with_the_decay(self):
        flags = ["--train-iters", 3, "--lr-decay-style", "linear", "--valid-fraction", 0]
        self.assertEqual(self.train(*flags, out="same").returncode, 0)
        self.assertEqual(self.train(*flags, "--mtp-loss-scaling-factor-decayed", 0, out="less").returncode, 0)
        norms = [[step["grad_norm"] for step in self.steps(out)] for out in ("same", "less")]
        self.assertEqual(norms[0][0], norms[1][0])
        self.assertNotEqual(norms[0][1], norms[1][1])

    def test_documents_longer_than_a_row_are_an_error_or_split(self):
        lines = self.folder / "chat.jsonl"
        lines.write_text("".join(json.dumps({"prompt": "q" * 50, "response": "a" * 200}) + "\n" for _ in range(60)))
        name = self.folder / "chat"
        made = lethe("data", "prepare", lines, "--output-prefix", name)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.refused(self.train("--train-iters", 1, "--data", name), 4, "--long-documents split")
        split = self.train("--train-iters", 1, "--data", name, "--long-documents", "split")
        self.assertEqual(split.returncode, 0, split.stderr)

    def test_the_optimizer_is_printed_without_a_run(self):
        result = lethe("train", *SMALL, "--train-iters", 1, "--optimizer", "muon", "--muon-momentum", 0.9,
                       "--muon-update-rms", 0.25, "--print-optimizer")
        self.assertEqual(result.returncode, 0, result.stderr)
        for text in ("muon", "adamw", "embedding.word_embeddings.weight", "0.9", "0.25"):
            self.assertIn(text, result.stdout)

    def test_text_becomes_tokens_and_tokens_a_data_set(self):
        text = self.folder / "text.txt"
        text.write_text("To be, or not to be. " * 200)
        shown = lethe("tokenize", text, "--format", "ids")
        self.assertEqual(shown.stdout.split()[:5], ["84", "111", "32", "98", "101"])
        piped = lethe("tokenize", "-", "--format", "json", input="ab")
        self.assertEqual(json.loads(piped.stdout)["ids"], [97, 98])
        name = self.folder / "data"
        made = lethe("data", "prepare", text, "--output-prefix", name)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertIn("4200 tokens", made.stdout)
        self.refused(lethe("data", "prepare", text, "--output-prefix", name), 4, "overwrite")
        result = self.train("--train-iters", 1, "--data", name)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(lethe("train", *SMALL, "--train-iters", 1, "--data", f"0.5 {name} 0.5 {text}",
                               "--output", self.folder / "blend").returncode, 0)

    def test_bad_data_is_named(self):
        lines = self.folder / "bad.jsonl"
        lines.write_text('{"text": "fine"}\n{"text": oops}\n')
        name = self.folder / "data"
        self.refused(lethe("data", "prepare", lines, "--output-prefix", name), 4, "bad.jsonl", "line 2")
        self.assertFalse(pathlib.Path(str(name) + ".idx").exists())
        text = self.folder / "text.txt"
        text.write_text("To be, or not to be. " * 200)
        self.assertEqual(lethe("data", "prepare", text, "--output-prefix", name).returncode, 0)
        self.refused(self.train("--train-iters", 1, "--data", name, "--vocab-size", 100), 2, "256")
        index = pathlib.Path(str(name) + ".idx")
        index.write_bytes(b"not an index" + index.read_bytes()[12:])
        self.refused(self.train("--train-iters", 1, "--data", name), 4, "data.idx", "MMIDIDX")
        foreign = self.folder / "tokenizer.json"
        foreign.write_text(json.dumps({"added_tokens": [], "normalizer": None, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
                                       "model": {"type": "Unigram", "vocab": []}}))
        self.refused(lethe("tokenize", text, "--tokenizer", foreign), 4, "tokenizer.json", "Unigram")

    def test_sampling_flags_are_checked_and_top_p_narrows(self):
        self.assertEqual(self.train("--train-iters", 1).returncode, 0)
        model = self.folder / "run" / "model"
        greedy = lethe("generate", model, "--temperature", 0, "--max-new-tokens", 8)
        narrow = lethe("generate", model, "--top-p", 1e-6, "--max-new-tokens", 8)
        self.assertEqual(greedy.returncode, 0, greedy.stderr)
        self.assertEqual(greedy.stdout, narrow.stdout)
        self.refused(lethe("generate", model, "--top-p", 0), 2, "--top-p")

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
