"""Runs every command of a page of the guide, as a reader would: the blocks marked `sh`, in their order, in one shell.

Environment: LETHE_PROGRAM, the program; LETHE_TOKENIZER, a tokenizer.json (./bootstrap puts V4's there). The shell's
folder looks like the repository to the commands of the page: examples/, build/bin/ and build/tokenizer/ are there.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "guide" / "text-to-model.md"
TIME_LIMIT_SECONDS = 1200
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands_of(page):
    """The blocks of commands; a command in a block of another kind would run in no test."""
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    for kind, text in blocks:
        if kind != "sh" and re.search(r"^\S*lethe ", text, re.MULTILINE):
            sys.exit(f"{page.name}: a command must stand in a block marked sh, got one marked '{kind}':\n{text}")
    commands = [text for kind, text in blocks if kind == "sh"]
    if not commands:
        sys.exit(f"{page.name}: must have blocks marked sh, got none")
    return commands


def script_of(commands):
    """One script that shows each block before it runs and ends at the first command that fails."""
    lines = ["set -euo pipefail"]
    for number, text in enumerate(commands, 1):
        lines += [f"cat <<'LETHE_GUIDE_BLOCK'\n\n--- block {number} of {len(commands)}\n{text}LETHE_GUIDE_BLOCK", text]
    return "\n".join(lines) + "\n"


def furnish(folder, program, tokenizer):
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "build" / "tokenizer").mkdir(parents=True)
    (folder / "build" / "tokenizer" / "tokenizer.json").symlink_to(tokenizer)
    (folder / "build" / "bin").mkdir()
    (folder / "build" / "bin" / "lethe").symlink_to(program)


def main():
    program = pathlib.Path(os.environ["LETHE_PROGRAM"]).resolve()
    tokenizer = pathlib.Path(os.environ["LETHE_TOKENIZER"]).resolve()
    for path in (program, tokenizer):
        if not path.is_file():
            sys.exit(f"guide_test.py: {path} must be there; make build makes it")
    script = script_of(commands_of(PAGE))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="lethe_guide_"))
    try:
        furnish(folder, program, tokenizer)
        code = subprocess.run(["bash", "-c", script], cwd=folder, timeout=TIME_LIMIT_SECONDS, check=False).returncode
    finally:
        shutil.rmtree(folder)
    if code != 0:
        sys.exit(f"{PAGE.name}: every command must end with 0, got {code} from the last one above")


if __name__ == "__main__":
    main()
