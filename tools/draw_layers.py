#!/usr/bin/env python3
"""Draws docs/design/layers.txt as docs/design/layers.svg. draw_layers.py [ROOT]

Every folder that the tree has stands on one level above the highest folder it may include. Only arrows that say
something new are drawn: `a -> c` is left out when `a -> b -> c` is there, and so is every arrow to `base`."""
import itertools
import sys
from pathlib import Path

from check_layers import TABLE, read_table

PICTURE = "docs/design/layers.svg"
WIDTH, COLUMNS, BOX_WIDTH, BOX_HEIGHT, LEVEL = 880, 7, 100, 40, 92
WITHOUT_TORCH = {"base", "config", "plan", "io", "kernels", "data", "report"}


def present(table, root):
    """The table without the folders that are planned and not there yet."""
    there = {folder for folder in table if (root / "lethe" / folder).is_dir()}
    return {folder: table[folder] & there for folder in table if folder in there}


def levels(table):
    """{folder: level}; base is 0, every arrow goes to a lower level. The table has no cycle (check_layers.py)."""
    found = {}

    def level(folder):
        if folder not in found:
            found[folder] = 1 + max((level(other) for other in table[folder]), default=-1)
        return found[folder]

    for folder in table:
        level(folder)
    return found


def reach(table, folder):
    """All folders below `folder`, over any number of arrows."""
    below = set()
    for other in table[folder]:
        below |= {other} | reach(table, other)
    return below


def drawn_arrows(table):
    """[(from, to)] without arrows that a longer way already implies, and without those to base."""
    arrows = []
    for folder, targets in table.items():
        for target in sorted(targets - {"base"}):
            if not any(target in reach(table, other) for other in targets - {target}):
                arrows.append((folder, target))
    return arrows


def top(level, height):
    return 20 + (height - 1 - level) * LEVEL


def ends(arrow, column_of):
    """x of the start and of the end: shifted towards each other, so that arrows of one box stand apart."""
    x0, x1 = ((column_of[folder] + 0.5) * WIDTH / COLUMNS for folder in arrow)
    shift = round((x1 - x0) / WIDTH * BOX_WIDTH * 0.8)
    return round(x0) + shift, round(x1) - shift


def cost(column_of, level_of, arrows):
    """How hard the placement is to read: arrows through boxes, crossings, lengths."""
    total = sum(abs(column_of[folder] - (COLUMNS - 1) / 2) for folder in column_of) / 10
    lines = []
    for arrow in arrows:
        (x0, x1), (high, low) = ends(arrow, column_of), (level_of[folder] for folder in arrow)
        total += abs(x1 - x0) / 100
        lines.append((high, low, x0, x1))
        for folder, level in level_of.items():
            if low < level < high:
                x = x0 + (x1 - x0) * (high - level) / (high - low)
                distance = abs(x - (column_of[folder] + 0.5) * WIDTH / COLUMNS)
                total += 100 * (distance < BOX_WIDTH / 2 + 24)
    for one, other in itertools.combinations(lines, 2):
        total += 2 * (one[:2] == other[:2] and (one[2] - other[2]) * (one[3] - other[3]) < 0)
    return total


def place(table, level_of):
    """{folder: column}: row by row the cheapest placement, until no row gets better. Always the same result."""
    arrows = drawn_arrows(table)
    rows = [[f for f in table if level_of[f] == level] for level in range(max(level_of.values()) + 1)]
    column_of = {f: i + (COLUMNS - len(row)) // 2 for row in rows for i, f in enumerate(row)}
    best, before = cost(column_of, level_of, arrows), None
    while best != before:
        before = best
        for row in rows:
            for columns in itertools.permutations(range(COLUMNS), len(row)):
                tried = {**column_of, **dict(zip(row, columns))}
                price = cost(tried, level_of, arrows)
                if price < best - 1e-9:
                    best, column_of = price, tried
    return column_of


def draw(table):
    """The picture as SVG text."""
    level_of = levels(table)
    column_of = place(table, level_of)
    rows = max(level_of.values()) + 1
    height = top(0, rows) + BOX_HEIGHT + 36
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="15" text-anchor="middle">',
        '<title>The folders of lethe/ and what each may include</title>',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#667"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
    ]
    for arrow in drawn_arrows(table):
        start, end = top(level_of[arrow[0]], rows) + BOX_HEIGHT, top(level_of[arrow[1]], rows)
        x0, x1 = ends(arrow, column_of)
        out.append(f'<path d="M{x0} {start}L{x1} {end}" stroke="#667" stroke-width="1.3" marker-end="url(#tip)"/>')
    for folder, column in column_of.items():
        x, y = round((column + 0.5) * WIDTH / COLUMNS), top(level_of[folder], rows)
        fill, edge = ("#eaf3ea", "#4a7a4a") if folder in WITHOUT_TORCH else ("#e8eef8", "#44618f")
        left = round(x - BOX_WIDTH / 2)
        out.append(f'<rect x="{left}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6" fill="{fill}" '
                   f'stroke="{edge}"/><text x="{x}" y="{y + 25}">{folder}</text>')
    out.append(f'<text x="{WIDTH // 2}" y="{height - 12}" font-size="12" fill="#555">green: without torch; blue: with '
               'torch; an arrow means "may include"; every folder may include base</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    (root / PICTURE).write_text(draw(present(read_table(root / TABLE), root)))


if __name__ == "__main__":
    main()
