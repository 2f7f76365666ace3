#!/usr/bin/env python3
"""Holds the tree to docs/design/layers.txt: includes, CMake USES, and no cycles. check_layers.py [ROOT]"""
import re
import sys
from pathlib import Path

from cpp_text import sources

TABLE = "docs/design/layers.txt"
_INCLUDE = re.compile(r'^\s*#\s*include\s*["<](lethe/[^">]+)[">]', re.M)


def read_table(path):
    """{folder: set of folders it may include}."""
    table = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) != 3 or not cells[1] or cells[0] in table:
            raise SystemExit(f"{path}:{number}: must be 'folder | duty | may include', each folder once, got '{line}'")
        table[cells[0]] = set(cells[2].split())
    return table


def find_cycle(graph):
    """One cycle as a list of nodes, first == last; none: []."""
    state, trail = {}, []

    def visit(node):
        state[node] = "open"
        trail.append(node)
        for other in sorted(graph.get(node, ())):
            if state.get(other) == "open":
                return trail[trail.index(other):] + [other]
            if other not in state:
                cycle = visit(other)
                if cycle:
                    return cycle
        trail.pop()
        state[node] = "done"
        return []

    for node in sorted(graph):
        if node not in state:
            cycle = visit(node)
            if cycle:
                return cycle
    return []


def cmake_uses(root):
    """{folder: set of its USES} of every lethe_layer() call."""
    uses = {}
    for path in sorted((root / "lethe").glob("*/CMakeLists.txt")):
        text = re.sub(r"#[^\n]*", "", path.read_text())
        for call in re.findall(r"lethe_layer\(([^)]*)\)", text):
            words = call.split()
            listed = words[words.index("USES") + 1:] if "USES" in words else []
            uses[path.parent.name] = (words[0], set(listed))
    return uses


def check(root):
    root = Path(root)
    table = read_table(root / TABLE)
    problems = []
    for folder, allowed in table.items():
        for other in sorted(allowed - set(table)):
            problems.append(f"{TABLE}: '{folder}' may include '{other}', which has no row")
    cycle = find_cycle(table)
    if cycle:
        problems.append(f"{TABLE}: the arrows must form no cycle, got {' -> '.join(cycle)}")
    for path in sorted((root / "lethe").iterdir()):
        if path.is_dir() and path.name not in table:
            problems.append(f"lethe/{path.name}: must have a row in {TABLE}")

    files, used = {}, {folder: set() for folder in table}
    for path in sources(root, "lethe"):
        name = path.relative_to(root).as_posix()
        text = path.read_text()
        files[name] = set(_INCLUDE.findall(text))
        parts = name.split("/")
        if len(parts) < 3 or parts[1] not in table:
            continue
        for target in sorted(files[name]):
            other = target.split("/")[1]
            if other == parts[1]:
                continue
            used[parts[1]].add(other)
            if other not in table[parts[1]] | {"base"}:
                line = text[:text.index(target)].count("\n") + 1
                problems.append(f"{name}:{line}: '{parts[1]}' must include only {sorted(table[parts[1]] | {'base'})}, "
                                f"got {target}; move the code or the decision")
    cycle = find_cycle(files)
    if cycle:
        problems.append(f"the includes must form no cycle, got {' -> '.join(cycle)}")

    for folder, (name, uses) in cmake_uses(root).items():
        where = f"lethe/{folder}/CMakeLists.txt"
        if name != folder:
            problems.append(f"{where}: lethe_layer must be named after its folder, got '{name}'")
        for other in sorted(uses - table.get(folder, set()) - {"base"}):
            problems.append(f"{where}: USES {other} is no arrow of {TABLE}")
        for other in sorted(used.get(folder, set()) - uses - {folder}):
            problems.append(f"{where}: USES must name '{other}', which its files include")
        for other in sorted(uses - used.get(folder, set()) - {"base"}):
            problems.append(f"{where}: USES names '{other}', which no file of the folder includes")
    return problems


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    problems = check(root)
    for problem in problems:
        print(f"check_layers: {problem}")
    if not problems:
        print(f"check_layers: {len(sources(root, 'lethe'))} files follow {TABLE}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
