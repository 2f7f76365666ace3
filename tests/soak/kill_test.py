"""Kills a training run at random moments and checks that nothing that it reported saved is lost.

    LETHE_PROGRAM=build/bin/lethe python3 tests/soak/kill_test.py --kills 60 --mode both

A run that saves every few steps is ended by SIGKILL: anywhere, after some steps, while a save is being written, or
right after one got its name. Then it is resumed (`lethe train --load DIR`) and killed again; a run that gets to its
end makes room for a fresh one until all kills are spent. After each kill, and at each end:

* LATEST names a whole checkpoint, not older than the newest one that sessions.jsonl or the output said was saved;
* the kill left at most one temporary folder, and the next save removed those of earlier kills;
* the resumed process went on from the checkpoint that LATEST named;
* the record equals, except the fields of time, the beginning of that of a run that nobody disturbed; at the end all
  of it, and the model file is the same byte for byte.

Exit code 0: all of it held. The moments come from --seed, but what the program does then depends on the machine.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SAVE_INTERVAL = 3
KEEP_LAST = 2
STEPS = 30
# A model of every layer type that takes a second or two to start and runs many steps a second.
SETTINGS = ["--recipe", "tiny", "--num-layers", 3, "--hidden-size", 64, "--csa-compress-ratios", 4, 8, 0,
            "--num-experts", 4, "--threads", 1, "--seq-length", 32, "--micro-batch-size", 1, "--global-batch-size", 2,
            "--lr-warmup-iters", 2, "--eval-interval", 5, "--eval-iters", 1, "--log-interval", 1,
            "--train-iters", STEPS, "--save-interval", SAVE_INTERVAL, "--keep-last", KEEP_LAST]
MODES = {"sync": [], "async": ["--async-save"]}
# What two runs of one configuration may differ in: time, and where they lie.
TIME_FIELDS = {"tokens_per_second", "seconds", "time"}
PLACE_FIELDS = {"output", "save", "load", "overwrite"}
AIMS = ["anywhere", "step", "save", "commit"]
POLL_SECONDS = 0.0005
LIFE_LIMIT_SECONDS = 600


class Failure(Exception):
    """What the program must not do."""


def expect(condition, text):
    if not condition:
        raise Failure(text)


def without(value, names):
    if isinstance(value, dict):
        return {key: without(inner, names) for key, inner in value.items() if key not in names}
    return [without(inner, names) for inner in value] if isinstance(value, list) else value


def json_lines(path):
    """The complete lines of a file; a killed process may leave half of the last one."""
    if not path.exists():
        return []
    *complete, _ = path.read_text().split("\n")
    try:
        return [json.loads(line) for line in complete if line]
    except ValueError as error:
        raise Failure(f"every whole line of {path} must be JSON, got {error}") from error


@dataclasses.dataclass
class Run:
    """The folder of a run."""
    folder: pathlib.Path

    @property
    def saves(self):
        return self.folder / "checkpoints"

    def record(self):
        return [without(line, TIME_FIELDS | PLACE_FIELDS) for line in json_lines(self.folder / "run.jsonl")]

    def sessions(self):
        return json_lines(self.folder / "sessions.jsonl")

    def model(self):
        return (self.folder / "model" / "model.safetensors").read_bytes()

    def names(self, prefix):
        if not self.saves.exists():
            return []
        return sorted(entry.name for entry in self.saves.iterdir() if entry.name.startswith(prefix))

    def latest(self):
        """The step that LATEST names, 0 without one; the checkpoint must look whole."""
        if not (self.saves / "LATEST").exists():
            return 0
        text = (self.saves / "LATEST").read_text()
        match = re.fullmatch(r"step-(\d{10})\n", text)
        expect(match, f"LATEST must name a step, got {text!r}")
        step_folder = self.saves / text.strip()
        expect((step_folder / "manifest.json").exists(), f"LATEST names {text.strip()}, which has no manifest.json")
        json.loads((step_folder / "manifest.json").read_text())
        json.loads((step_folder / "common.json").read_text())
        return int(match[1])

    def reported(self, log):
        """The newest step that the program said was saved."""
        steps = [line["step"] for line in self.sessions() if line["event"] == "saved"]
        for line in log.read_text(errors="replace").splitlines():
            steps += [int(step) for step in re.findall(r"step-(\d{10})", line) if "saved" in line]
        return max(steps, default=0)


class Soak:
    def __init__(self, program, folder, mode, dice):
        self.program, self.folder, self.mode, self.dice = program, folder, mode, dice
        self.log = folder / f"{mode}.log"
        self.reference = Run(folder / f"{mode}-reference")
        self.kills = {aim: 0 for aim in AIMS}
        self.inside_saves = 0
        self.ends = 0

    def start(self, words):
        command = [self.program, "train", *map(str, words)]
        with open(self.log, "a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(command)}\n")
            log.flush()
            return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def fresh(self, run):
        return self.start([*SETTINGS, *MODES[self.mode], "--output", run.folder, "--overwrite"])

    def make_reference(self):
        begin = time.monotonic()
        code = self.fresh(self.reference).wait(LIFE_LIMIT_SECONDS)
        expect(code == 0, f"the undisturbed run must end with 0, got {code}")
        expect(len([line for line in self.reference.record() if line["event"] == "step"]) == STEPS,
               "the undisturbed run must record every step")
        self.life_seconds = time.monotonic() - begin
        print(f"{self.mode}: the undisturbed run took {self.life_seconds:.1f} s", flush=True)

    def wait_for(self, process, happened):
        """Waits until happened() or the end of the process; True where the process still runs."""
        deadline = time.monotonic() + LIFE_LIMIT_SECONDS
        while process.poll() is None:
            expect(time.monotonic() < deadline, f"a run must end within {LIFE_LIMIT_SECONDS} s")
            if happened():
                return True
            time.sleep(POLL_SECONDS)
        return False

    def wait_for_moment(self, process, run, aim):
        """Sleeps until the moment to kill; False where the run ended before."""
        if aim == "anywhere":
            end = time.monotonic() + self.dice.uniform(0, self.life_seconds)
            return self.wait_for(process, lambda: time.monotonic() >= end)
        if aim == "step":
            record = run.folder / "run.jsonl"
            count = lambda: record.read_bytes().count(b'"event":"step"') if record.exists() else 0
            before, wanted = count(), self.dice.randint(1, 2 * SAVE_INTERVAL)
            # A resumed run first shortens the record to its checkpoint, so the count may fall.
            happened = lambda: count() >= min(before + wanted, STEPS)
            pause = self.dice.uniform(0, 0.05)
        elif aim == "save":
            old = set(run.names(".tmp-step-"))
            happened = lambda: set(run.names(".tmp-step-")) - old
            pause = self.dice.choice([0, 0.001, 0.003, 0.01, 0.03])
        else:
            old_latest = self.read_latest(run)
            happened = lambda: self.read_latest(run) != old_latest
            pause = self.dice.choice([0, 0, 0.001, 0.005])
        if not self.wait_for(process, happened):
            return False
        time.sleep(pause)
        return True

    @staticmethod
    def read_latest(run):
        latest = run.saves / "LATEST"
        return latest.read_text() if latest.exists() else ""

    def check_record(self, run):
        wanted, got = self.reference.record(), run.record()
        for number, line in enumerate(got):
            expected = wanted[number] if number < len(wanted) else "no line"
            expect(line == expected, f"line {number + 1} of the record must be\n  {expected}\ngot\n  {line}")

    def check_resumed(self, run, sessions_before, latest):
        """The process that was started to resume went on from the checkpoint that LATEST had named."""
        new = run.sessions()[sessions_before:]
        if latest and new:  # without a new line it was killed while it started
            expect(new[0]["event"] == "resumed" and pathlib.Path(new[0]["checkpoint"]).name == f"step-{latest:010d}",
                   f"a resumed run must say that it went on from step {latest}, got {new[0]}")

    def check_leftovers(self, run, reported, leftovers):
        """leftovers: temporary folder -> newest step reported saved when it was left."""
        now = run.names(".tmp-step-")
        for name, step in list(leftovers.items()):
            if name not in now:
                del leftovers[name]
            else:
                # The save after the kill removes it; the report of that save may come before.
                expect(reported < step + 2 * SAVE_INTERVAL,
                       f"{name}, left at step {step}, must be gone after the next save, but {reported} is saved")
        new = [name for name in now if name not in leftovers]
        expect(len(new) <= 1, f"a kill may leave one temporary folder, got {new}")
        leftovers.update({name: reported for name in new})
        return len(new)

    def check_end(self, run):
        self.check_record(run)
        expect(len(run.record()) == len(self.reference.record()), "the record of a whole run must be whole")
        expect(run.model() == self.reference.model(), "the model must equal that of the undisturbed run")
        expect(not run.names(".tmp-") and not run.names(".trash-"), f"nothing may be left of saves, got {run.names('.')}")
        expect(len(run.names("step-")) <= KEEP_LAST, f"{KEEP_LAST} checkpoints must stay, got {run.names('step-')}")
        expect(run.latest() >= STEPS - SAVE_INTERVAL, f"the last save must be there, got step {run.latest()}")
        self.ends += 1

    def one_run(self, run, kills_left):
        """Kills and resumes one run to its end, or until no kills are left; returns the kills done."""
        kills, latest, leftovers = 0, 0, {}
        self.log.write_text("")
        while True:
            sessions_before = len(run.sessions()) if latest else 0
            process = self.start(["--load", run.saves]) if latest else self.fresh(run)
            try:
                aim = self.dice.choice(AIMS)
                killed = kills < kills_left and self.wait_for_moment(process, run, aim)
                if killed:
                    process.send_signal(signal.SIGKILL)
                code = process.wait(LIFE_LIMIT_SECONDS)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
            if code == 0:
                self.check_resumed(run, sessions_before, latest)
                self.check_end(run)
                return kills
            expect(code == -signal.SIGKILL and killed, f"the run must end by our kill or with 0, got {code}")
            kills += 1
            self.kills[aim] += 1
            self.check_resumed(run, sessions_before, latest)
            reported, latest = run.reported(self.log), run.latest()
            temporaries = self.check_leftovers(run, reported, leftovers)
            self.inside_saves += temporaries
            print(f"{self.mode}: kill {sum(self.kills.values())}, aim {aim}: LATEST {latest}, reported {reported}, "
                  f"{len(run.record())} lines, {temporaries} temporary folder(s)", flush=True)
            expect(latest >= reported, f"step {reported} was reported saved, but LATEST names step {latest}")
            self.check_record(run)

    def soak(self, num_kills):
        self.make_reference()
        number = 0
        while sum(self.kills.values()) < num_kills:
            run = Run(self.folder / f"{self.mode}-{number}")
            self.one_run(run, num_kills - sum(self.kills.values()))
            shutil.rmtree(run.folder)
            number += 1
        print(f"{self.mode}: {sum(self.kills.values())} kills {self.kills}, {self.inside_saves} left a save unfinished, "
              f"{self.ends} runs came to their end: nothing lost", flush=True)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--kills", type=int, default=60, help="kills over all modes")
    parser.add_argument("--mode", choices=["sync", "async", "both"], default="both", help="how checkpoints are saved")
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    arguments = parser.parse_args()
    arguments.modes = list(MODES) if arguments.mode == "both" else [arguments.mode]
    if arguments.kills < len(arguments.modes):
        parser.error(f"--kills must be at least {len(arguments.modes)}, one per mode, got {arguments.kills}")
    return arguments


def main():
    arguments = parse_arguments()
    program = os.path.abspath(os.environ["LETHE_PROGRAM"])
    folder = pathlib.Path(tempfile.mkdtemp(prefix="lethe_kill_"))
    print(f"seed {arguments.seed}, {arguments.kills} kills, runs in {folder}", flush=True)
    for number, mode in enumerate(arguments.modes):
        share = arguments.kills * (number + 1) // len(arguments.modes) - arguments.kills * number // len(arguments.modes)
        soak = Soak(program, folder, mode, random.Random(f"{arguments.seed} {mode}"))
        try:
            soak.soak(share)
        except (Failure, subprocess.TimeoutExpired) as failure:
            print(f"FAILED ({mode}): {failure}\nThe last lines of {soak.log}:", file=sys.stderr)
            print("\n".join(soak.log.read_text(errors="replace").splitlines()[-15:]), file=sys.stderr)
            print(f"The folders are kept: {folder}", file=sys.stderr)
            return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
