"""What `lethe train` recomputes, keeps and swaps: the same digits, the bytes of the plan, the errors. Needs
LETHE_PROGRAM=path of bin/lethe."""

import concurrent.futures
import json
import re
import unittest

from program_case import GOLDEN, ProgramCase, lethe


class RecomputeTest(ProgramCase):
    def test_save_units_are_listed_for_a_model(self):
        table = lethe("units", "--recipe", "tiny")
        self.assertEqual(table.returncode, 0, table.stderr)
        self.assertIn("lethe::sparse_attention", table.stdout)
        units = json.loads(lethe("units", "--hf-config", GOLDEN / "T", "--json").stdout)["units"]
        self.assertEqual([unit["unit"] for unit in units], ["attn", "moe_gate", "experts", "mhc", "compressor"])
        self.assertTrue(all(not unit["missing"] for unit in units))
        self.refused(lethe("units", "--recipe", "tiny", "--jsno"), 2, "--jsno", "did you mean '--json'?")
        self.refused(lethe("units", "--recipe", "tiny", "--save-units", "attn"), 2, "--save-units", "lethe train")
        self.refused(lethe("units"), 2, "--num-layers", "--recipe tiny")

    def test_the_plan_is_printed_and_written_without_a_run_and_read_by_one(self):
        plan = self.folder / "plan.json"
        flags = ["--train-iters", 2, "--save-recompute-plan", plan]
        dry = self.train(*flags, "--recompute-csa-attention", "--mhc-recompute", "--dry-run")
        self.assertEqual(dry.returncode, 0, dry.stderr)
        self.assertIn("main/ratio4 csa+mhc", dry.stdout)
        self.assertRegex(dry.stdout, r"sparse +G5 +frees")
        self.assertFalse((self.folder / "run").exists())
        self.assertEqual(json.loads(plan.read_text())["format"], "lethe-recompute-plan")
        run = self.train("--train-iters", 2, "--recompute-plan", plan, "--save-recompute-plan", self.folder / "again.json")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("main/ratio4 csa+mhc, frees", run.stdout)
        self.assertEqual((self.folder / "again.json").read_bytes(), plan.read_bytes())
        self.refused(self.train("--train-iters", 1, "--recompute-plan", plan, "--hidden-size", 64, out="other"), 2,
                     "hidden_size = 128 and not 64", "plan.json")
        self.assertFalse((self.folder / "other").exists())
        nothing = self.train("--train-iters", 2, "--dry-run")
        self.assertIn("nothing is recomputed", nothing.stdout)

    def test_what_is_recomputed_is_in_the_record_and_changes_no_digit(self):
        self.assertEqual(self.train("--train-iters", 3, out="plain").returncode, 0)
        result = self.train("--train-iters", 3, "--recompute-ratio", 0.5, "--save-units", "attn", "--recompute-checks", "checked",
                            "--recompute-stats")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("save units kept resident: attn", result.stderr)
        start = self.record()[0]["recompute"]
        self.assertEqual(start["save_units"], ["attn"])
        self.assertEqual(len(start["plan"]), 64)
        self.assertTrue(any(" full" in name for name in start["classes"].values()), start)
        self.assertNotIn("recompute", self.record("plain")[0])
        steps, plain = self.steps("run"), self.steps("plain")
        for step, other in zip(steps, plain):
            self.assertNotIn("recompute", other)
            self.assertEqual([step[key] for key in ("loss", "loss_mtp", "loss_kl", "grad_norm")],
                             [other[key] for key in ("loss", "loss_mtp", "loss_kl", "grad_norm")])
        regions = [json.loads(line) for line in (self.folder / "run" / "recompute.jsonl").read_text().splitlines()]
        for step in steps:
            rows = [row for row in regions if row["step"] == step["step"]]
            self.assertGreater(len(rows), 0)
            for key in ("released", "retained", "replays"):
                self.assertEqual(sum(row[key] for row in rows), step["recompute"][key], key)
        weights = [(self.folder / out / "model" / "model.safetensors").read_bytes() for out in ("run", "plain")]
        self.assertEqual(*weights)

    def test_every_mode_prints_and_records_the_digits_of_none(self):
        csa, mhc, norm = "--recompute-csa-attention", "--mhc-recompute", "--recompute-norm"
        full = ["--recompute-granularity", "full", "--recompute-num-layers", 2, "--recompute-method"]
        modules = ["--recompute-granularity", "selective", "--recompute-modules"]
        modes = {  # what some layer does: the flags
            "": [],
            "q_norm+norm": [norm],
            "mhc": [mhc],
            "mhc inner": [mhc, "--mhc-recompute-layer-num", 2],
            "csa": [csa],
            "csa keep=attn_out": [csa, "--recompute-csa-keep-output"],
            "csa+q_norm+norm+mhc": [csa, mhc, norm],
            "mtp/window plain": [csa, mhc, "--recompute-mtp", "skip"],
            "q_norm+norm+mhc+core_attn+mla_up_proj+moe": [*modules, "core_attn", "layernorm", "mla_up_proj", "moe", "mhc"],
            "shared_experts": [*modules, "shared_experts"],
            "full": [*full, "block"],
            "full save=attn": [*full, "block", "--save-units", "attn", csa],
            "full open": [*full, "uniform"],
            "full save=attn,moe_gate,experts,mhc,compressor": ["--recompute-ratio", 0.8, "--save-units", "all"],
            "swap": ["--swap-layer-input"],
        }

        def run(number, flags):
            return self.train("--train-iters", 3, "--valid-fraction", 0, "--log-interval", 1, *flags, out=str(number))

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            results = list(pool.map(run, range(len(modes)), modes.values()))
        keys = ("loss", "loss_mtp", "loss_kl", "grad_norm")
        digits = [[[step[key] for key in keys] for step in self.steps(str(i))] if r.returncode == 0 else r.stderr
                  for i, r in enumerate(results)]
        printed = [re.findall(r"^step .*  norm \S+", result.stdout, re.M) for result in results]
        self.assertEqual((len(digits[0]), len(printed[0])), (3, 3), digits[0])
        for number, mode in list(enumerate(modes))[1:]:
            self.assertEqual(digits[number], digits[0], mode)
            self.assertEqual(printed[number], printed[0], mode)
            classes = self.record(str(number))[0]["recompute"]["classes"].values()
            self.assertTrue(any(name.endswith(mode) for name in classes), (mode, classes))
            for step, other in zip(self.steps(str(number)), self.steps("0")):
                self.assertLess(step["saved_bytes"], other["saved_bytes"], mode)

    # Settings that change what layers save.
    BYTE_CASES = {"plain": [], "bf16": ["--bf16"], "definitions": ["--dsa-kernel-backend", "none"],
                  "balanced": ["--moe-aux-loss-coeff", 0.01, "--seq-aux-hash-layers"],
                  "dense": ["--csa-attention", "dense"], "dense-loss": ["--indexer-loss", "dense"],
                  "conditional": ["--indexer-teacher", "conditional"], "no-indexer-loss": ["--indexer-loss", "off"]}

    def test_checks_hold_regions_to_the_predicted_bytes_whatever_is_trained(self):
        flags = ["--train-iters", 1, "--recompute-csa-attention", "--mhc-recompute", "--recompute-norm", "--recompute-granularity",
                 "selective", "--recompute-modules", "moe", "--recompute-checks", "checked"]
        cases = self.BYTE_CASES | {"part": ["--recompute-norm-num-layers", 2], "frozen": ["--train-only-indexer"]}
        for name, more in cases.items():
            result = self.train(*flags, *more, out=name)
            self.assertEqual(result.returncode, 0, f"{name}: {result.stderr}")
            self.assertGreater(self.steps(name)[-1]["recompute"]["released"], 0, name)
            self.assertEqual("[DC5]" in result.stderr, name == "frozen", result.stderr)

    def test_checks_hold_whole_layers_and_save_units_to_the_predicted_bytes(self):
        flags = ["--train-iters", 1, "--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", 2,
                 "--save-units", "all", "--recompute-checks", "checked"]
        for name, more in self.BYTE_CASES.items():
            result = self.train(*flags, *more, out=name)
            self.assertEqual(result.returncode, 0, f"{name}: {result.stderr}")
            units = self.steps(name)[-1]["recompute"]["units"]
            self.assertEqual(list(units), ["attn", "moe_gate", "experts", "mhc", "compressor"], name)
            for unit, counts in units.items():
                self.assertEqual(counts["kept"], counts["predicted"], f"{name} {unit}")
                self.assertGreater(counts["forward_ns"], 0, f"{name} {unit}")

    def test_swapped_inputs_change_no_digit_and_are_in_the_record(self):
        plan = self.folder / "plan.json"
        flags = ["--train-iters", 2]
        self.assertEqual(self.train(*flags, out="plain").returncode, 0)
        result = self.train(*flags, "--swap-layer-input", "--offload-folder", self.folder, "--recompute-csa-attention",
                            "--recompute-checks", "checked", "--save-recompute-plan", plan)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("a file in " + str(self.folder), result.stdout)
        for mine, other in zip(self.steps("run"), self.steps("plain"), strict=True):
            for key in ("loss", "loss_mtp", "loss_kl", "grad_norm"):
                self.assertEqual(mine[key], other[key], key)
            self.assertLess(mine["saved_bytes"], other["saved_bytes"])
            swap = mine["swap"]
            self.assertGreater(swap["bytes_out"], 0)
            self.assertEqual(swap["entries_out"], swap["entries_in"] + swap["cancelled"])
        again = self.train(*flags, "--recompute-plan", plan, out="again")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(self.steps("again")[-1]["swap"]["bytes_out"], self.steps("run")[-1]["swap"]["bytes_out"])
        csa = ["--recompute-csa-attention", "--save-recompute-plan", plan, "--dry-run"]
        self.assertEqual(self.train("--train-iters", 2, *csa).returncode, 0)
        idle = self.train("--train-iters", 2, "--recompute-plan", plan, "--offload-folder", self.folder, "--dry-run")
        self.assertIn("the settings of the host tier are not used", idle.stderr)
        self.refused(self.train(*flags, "--swap-layer-input", "--offload-folder", self.folder / "none", out="x"), 4, "none")
        self.assertFalse((self.folder / "x").exists())
        self.refused(self.train(*flags, "--offload-folder", self.folder, out="x"), 2, "--offload-folder", "swap_layer_input")

    def test_inputs_below_the_first_gradient_stay(self):
        result = self.train("--train-iters", 1, "--train-only-indexer", "--swap-layer-input", "--swap-prefetch-distance", 0,
                            "--recompute-csa-attention", "--recompute-checks", "checked")
        self.assertEqual(result.returncode, 0, result.stderr)
        swap = self.steps("run")[-1]["swap"]
        self.assertEqual(swap["entries_out"], swap["entries_in"] + swap["cancelled"])

    def test_a_host_tier_that_is_too_small_ends_the_run_with_the_layer(self):
        result = lethe("train", "--recipe", "tiny", "--train-iters", 1, "--lr-warmup-iters", 0, "--output", self.folder / "run",
                       "--swap-layer-input", "--offload-budget-mb", 1)
        self.refused(result, 3, "L1.mb0", "--offload-budget-mb")

    def test_a_resume_may_recompute_something_else(self):
        self.assertEqual(self.train("--train-iters", 4, out="whole").returncode, 0)
        first = self.train("--train-iters", 4, "--exit-interval", 2, "--recompute-csa-attention", "--recompute-norm",
                           "--recompute-norm-num-layers", 2)
        self.assertEqual(first.returncode, 0, first.stderr)
        second = lethe("train", "--load", self.folder / "run" / "checkpoints", "--recompute-granularity", "full",
                       "--recompute-method", "uniform", "--recompute-num-layers", 2)
        self.assertEqual(second.returncode, 0, second.stderr)
        self.assertIn("recompute_norm_num_layers = 2 of the checkpoint is not taken", second.stderr)
        self.assertEqual([step["loss"] for step in self.steps("run")], [step["loss"] for step in self.steps("whole")])
        self.assertEqual(*((self.folder / out / "model" / "model.safetensors").read_bytes() for out in ("run", "whole")))
        sessions = [json.loads(line) for line in (self.folder / "run" / "sessions.jsonl").read_text().splitlines()]
        plans = [session["plan"] for session in sessions if session["event"] in ("started", "resumed")]
        self.assertNotEqual(*plans)

    def test_contradictory_recompute_is_refused_before_anything_is_written(self):
        result = self.train("--train-iters", 1, "--recompute-csa-attention", "--save-units", "attn", "--recompute-method", "block")
        self.refused(result, 2, "3 errors", "RC2", "RC13", "RC14")
        self.refused(self.train("--train-iters", 1, "--recompute-ratio", 0.5, "--save-units", "moe_dispatch"), 2,
                     "moe_dispatch", "deepseek_v4")
        self.refused(self.train("--train-iters", 1, "--recompute-granularity", "selective", "--recompute-modules", "mlp"), 2,
                     "moe")
        self.refused(self.train("--train-iters", 1, "--recompute-ratio", 1, "--recompute-mtp", "skip", "--recompute-csa-attention"),
                     2, "--recompute-csa-attention [RC9]", "--recompute-ratio 1, --recompute-mtp skip")
        self.assertFalse((self.folder / "run").exists())

    def test_recompute_without_an_effect_is_said(self):
        result = self.train("--train-iters", 1, "--recompute-ratio", 0.1, "--save-units", "attn", "--dry-run")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("warning: --recompute-ratio 0.1 has no effect", result.stderr)
        self.assertIn("warning: --save-units attn has no effect", result.stderr)
        self.assertNotIn("kept resident", result.stderr)
        self.assertIn("nothing is recomputed", result.stdout)


if __name__ == "__main__":
    unittest.main()
