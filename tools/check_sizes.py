#!/usr/bin/env python3
"""Holds files and functions to the hard size budgets of the style. check_sizes.py [ROOT]"""
import sys
from pathlib import Path

from cpp_text import functions, sources

SOURCE_LINES = 600
HEADER_LINES = 400
OPERATOR_LINES = 200  # a wrapper, lethe/ops/<op>.cpp; a gradient may have its own file <op>_grad.cpp
TEST_LINES = 600
FUNCTION_LINES = 100
FUNCTION_PARAMETERS = 8

# (file, function name or None for the file's own length): why it may be longer. Nothing else is exempt.
SCHEMA = "a dispatcher entry: the operator's schema fixes its parameters"
EXEMPT = {
    (f"lethe/ops/{op}.cpp", function): SCHEMA
    for op in ("compressor", "indexer_kl", "sparse_attention")
    for function in ("forward", "meta", "autograd")
}


def file_budget(name):
    """(limit, what it limits) of a file's lines."""
    if name.startswith("tests/"):
        return TEST_LINES, "a test file"
    if name.endswith((".h", ".cuh")):
        return HEADER_LINES, "a header"
    if name.startswith("lethe/ops/") and name.count("/") == 2:
        return OPERATOR_LINES, "an operator's wrapper"
    return SOURCE_LINES, "a source file"


def check(root, exempt=None):
    root = Path(root)
    exempt = EXEMPT if exempt is None else exempt
    problems, used = [], set()

    def over(key, text):
        if key in exempt:
            used.add(key)
        else:
            problems.append(text)

    for path in sources(root, "lethe", "tests", "bench", "examples"):
        name = path.relative_to(root).as_posix()
        text = path.read_text(errors="replace")
        lines = text.count("\n")
        limit, what = file_budget(name)
        if lines > limit:
            over((name, None), f"{name}: {what} must have at most {limit} lines, got {lines}; split it")
        for function, line, length, parameters in functions(text):
            if length > FUNCTION_LINES:
                over((name, function), f"{name}:{line}: function {function} must have at most {FUNCTION_LINES} lines, "
                                       f"got {length}; split it")
            # Kernel entries take raw pointers and sizes; a struct would only move the list.
            if parameters > FUNCTION_PARAMETERS and not name.startswith("lethe/kernels/"):
                over((name, function), f"{name}:{line}: function {function} must have at most {FUNCTION_PARAMETERS} "
                                       f"parameters, got {parameters}; use a struct")
    for key in sorted(set(exempt) - used, key=str):
        problems.append(f"tools/check_sizes.py: the exemption of {key} is no longer needed; delete it")
    return problems


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    problems = check(root)
    for problem in problems:
        print(f"check_sizes: {problem}")
    if not problems:
        print("check_sizes: every file and function is within its budget")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
