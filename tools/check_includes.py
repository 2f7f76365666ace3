#!/usr/bin/env python3
"""Forbidden includes, ASCII sources, no machine's paths, every rule tested. check_includes.py [ROOT]"""
import re
import sys
from pathlib import Path

from cpp_text import sources, string_literals

TORCH_FREE = ("base", "config", "plan", "io", "kernels", "data", "report")
FORBIDDEN = ("torch/torch.h", "torch/all.h", "torch/extension.h")  # 20 s of compile time each
_INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.M)
_TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")
# Split, so that this file does not name what it forbids.
_MACHINE_PATH = re.compile(r"(?<![\w.$})/-])/" + r"(?:home|work|root|Users)/")
_TEXT = (".h", ".cpp", ".cu", ".cuh", ".py", ".sh", ".cmake", ".txt", ".toml")
# "[E-ST-DTYPE]", "[SC1]", "[A]:" inside a literal, and a bare "E-ST-DTYPE" handed to a function.
_RULE = re.compile(r"\b(E-[A-Z0-9]+(?:-[A-Z0-9]+)*)\b|\[([A-Z]{1,3}[0-9]+[a-z]?)\]|\[([A-Z])\]:")


def check_includes(root):
    for path in sources(root, "lethe", "tests", "bench", "examples", "python"):
        name = path.relative_to(root).as_posix()
        parts = name.split("/")
        torch_free = parts[0] == "lethe" and parts[1] in TORCH_FREE
        for target in _INCLUDE.findall(path.read_text(errors="replace")):
            if target in FORBIDDEN:
                yield f"{name}: must not include {target}; name the few ATen headers it needs"
            elif _TORCH.match(target) and (torch_free or path.suffix in (".cu", ".cuh")):
                yield f"{name}: must not know torch, got an include of {target}; move the code to a torch folder"


def check_text(root):
    files = sources(root, "lethe", "tests", "tools", "cmake", "examples", "bench", "python", suffixes=_TEXT)
    # Training and golden text is data, not source.
    for path in files + [p for p in (root / "CMakeLists.txt", root / "Makefile", root / "bootstrap") if p.is_file()]:
        name = path.relative_to(root).as_posix()
        if name.startswith(("examples/data/", "tests/golden/", "tests/fuzz/corpus/")):
            continue
        for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
            if not line.isascii():
                yield f"{name}:{number}: must be ASCII, got {line.decode(errors='replace').strip()[:60]!r}"
            if _MACHINE_PATH.search(line.decode(errors="replace")):
                yield f"{name}:{number}: must not hold a path of one machine, got {line.decode().strip()[:80]!r}"


def rule_ids(text):
    """The rule ids that the string literals of a source name."""
    found = set()
    for literal in string_literals(text):
        found |= {next(filter(None, groups)) for groups in _RULE.findall(literal)}
    return found


def check_rules(root):
    tests = "\n".join(p.read_text(errors="replace")
                      for p in sources(root, "tests", suffixes=(".h", ".cpp", ".py", ".sh", ".txt")))
    for path in sources(root, "lethe"):
        for rule in sorted(rule_ids(path.read_text(errors="replace"))):
            pattern = rf"(?<![\w-]){re.escape(rule)}(?![\w-])"
            if not re.search(pattern, tests):
                yield f"{path.relative_to(root).as_posix()}: rule [{rule}] must be named by a test under tests/; add its case"


def check(root):
    root = Path(root)
    return [*check_includes(root), *check_text(root), *check_rules(root)]


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    problems = check(root)
    for problem in problems:
        print(f"check_includes: {problem}")
    if not problems:
        print("check_includes: includes, text and rules are in order")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
