#!/usr/bin/env python3
"""Draws docs/design/layers.txt as docs/design/layers.svg. draw_layers.py [ROOT]

Every folder that the tree has stands on one level above the highest folder it may include. Only arrows that say
something new are drawn: `a -> c` is left out when `a -> b -> c` is there, and so is every arrow to `base`."""
import sys
from pathlib import Path

from check_layers import TABLE, read_table

PICTURE = "docs/design/layers.svg"
WIDTH, BOX_WIDTH, BOX_HEIGHT, LEVEL = 880, 112, 40, 84
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


def ordered_rows(table, level_of):
    """Folders per level, level 0 first; in a row by the mean place of what they include, then by name."""
    place, rows = {}, []
    for number in range(max(level_of.values()) + 1):
        row = [folder for folder in table if level_of[folder] == number]

        def wish(folder):
            known = [place[other] for other in table[folder] if other != "base"]
            return (sum(known) / len(known) if known else 0.5, folder)

        row.sort(key=wish)
        for i, folder in enumerate(row):
            place[folder] = (i + 0.5) / len(row)
        rows.append(row)
    return rows


def centres(rows):
    """{folder: (x, y of the top edge)}."""
    found = {}
    for number, row in enumerate(rows):
        for i, folder in enumerate(row):
            x = WIDTH * (i + 0.5) / len(row)
            found[folder] = (round(x), 20 + (len(rows) - 1 - number) * LEVEL)
    return found


def draw(table):
    """The picture as SVG text."""
    rows = ordered_rows(table, levels(table))
    at = centres(rows)
    height = 20 + (len(rows) - 1) * LEVEL + BOX_HEIGHT + 36
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="15" text-anchor="middle">',
        '<title>The folders of lethe/ and what each may include</title>',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#667"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
    ]
    for folder, target in drawn_arrows(table):
        (x0, y0), (x1, y1) = at[folder], at[target]
        start, end = y0 + BOX_HEIGHT, y1
        shift = round((x1 - x0) / WIDTH * BOX_WIDTH * 0.8)
        x0, x1 = x0 + shift, x1 - shift
        bend = min(LEVEL, (end - start) // 2)
        out.append(f'<path d="M{x0} {start}C{x0} {start + bend} {x1} {end - bend} {x1} {end}" fill="none" '
                   'stroke="#667" stroke-width="1.3" marker-end="url(#tip)"/>')
    for folder, (x, y) in at.items():
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
