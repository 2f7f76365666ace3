#!/usr/bin/env python3
"""Draws a recompute trace as SVG: live activation bytes over time, and when each kind of region ran, replayed and
released. plot_trace.py RECOMPUTE-TRACE.JSON OUT.SVG [STEP]"""
import json
import sys
from html import escape
from pathlib import Path

from plot_record import ticks

WIDTH, LEFT, RIGHT, TOP, CURVE, ROW, BOTTOM = 1100, 130, 20, 64, 260, 22, 44
RUN, REPLAY, RELEASE, LIVE = "#9db4dd", "#c8553d", "#2a7d5f", "#556b9d"


def read_events(path, step=None):
    """The trace's events without names of tracks; of one step (a number) where given."""
    events = [e for e in json.loads(Path(path).read_text())["traceEvents"] if e["ph"] != "M"]
    if step is not None:
        marks = {e["name"]: e["ts"] for e in events if e["ph"] == "i" and e["cat"] == "mark"}
        try:
            begin, end = marks[f"step {step}"], marks[f"end of step {step}"]
        except KeyError as missing:
            raise SystemExit(f"{path}: must have the mark {missing}, got {sorted(marks)}") from None
        events = [e for e in events if begin <= e["ts"] <= end]
    if not any(e["ph"] == "C" for e in events):
        raise SystemExit(f"{path}: must have counted bytes, got none; install byte accounting in the traced program")
    return events


def kind(name):
    """The sub-graph of a region: "sparse" of "L3.mb0.sparse"."""
    return name.rsplit(".", 1)[-1]


class Frame:
    """From microseconds and bytes to pixels."""

    def __init__(self, events):
        self.begin = min(e["ts"] for e in events)
        self.span = max(max(e["ts"] + e.get("dur", 0) for e in events) - self.begin, 1e-3)
        self.most = max(max(e["args"]["bytes"] for e in events if e["ph"] == "C"), 1)

    def x(self, us):
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (us - self.begin) / self.span, 2)

    def y(self, count):
        return round(TOP + CURVE * (1 - count / self.most), 2)


def curve(frame, events):
    """A staircase: between two samples nothing is known, the earlier one stands."""
    samples = sorted((e["ts"], e["args"]["bytes"]) for e in events if e["ph"] == "C")
    path, last = f"M{frame.x(samples[0][0])} {frame.y(0)}", frame.y(samples[0][1])
    path += f"V{last}"
    for us, count in samples[1:]:
        path += f"H{frame.x(us)}V{frame.y(count)}"
    path += f"V{frame.y(0)}Z"
    return f'<path d="{path}" fill="{LIVE}" fill-opacity="0.25" stroke="{LIVE}"/>'


def axes(frame):
    out, bottom = [], TOP + CURVE
    for megabytes in ticks(0, frame.most / 1e6, 5):
        y = frame.y(megabytes * 1e6)
        out.append(f'<path d="M{LEFT} {y}H{WIDTH - RIGHT}" stroke="#e4e4ea"/>'
                   f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{megabytes:g} MB</text>')
    out.append(f'<path d="M{LEFT} {TOP}V{bottom}H{WIDTH - RIGHT}" fill="none" stroke="#556"/>')
    return out


def marks(frame, events, height):
    out = []
    for e in events:
        if e["ph"] != "i" or e["cat"] != "mark":
            continue
        x = frame.x(e["ts"])
        anchor = "end" if e["name"].startswith("end of step") else "start"
        out.append(f'<path d="M{x} {TOP - 14}V{height - BOTTOM}" stroke="#777" stroke-dasharray="4 4"/>'
                   f'<text x="{x}" y="{TOP - 18}" text-anchor="{anchor}">{escape(e["name"])}</text>')
    return out


def rows(frame, events, names):
    out = []
    for i, name in enumerate(names):
        y = TOP + CURVE + 26 + ROW * i
        out.append(f'<text x="{LEFT - 8}" y="{y + 11}" text-anchor="end">{escape(name)}</text>'
                   f'<path d="M{LEFT} {y + ROW - 4}H{WIDTH - RIGHT}" stroke="#eeeef2"/>')
    for e in events:
        if e.get("cat") not in ("run", "replay", "release"):
            continue
        y = TOP + CURVE + 26 + ROW * names.index(kind(e["name"]))
        x = frame.x(e["ts"])
        if e["ph"] == "X":
            width = max(frame.x(e["ts"] + e["dur"]) - x, 0.8)
            colour = RUN if e["cat"] == "run" else REPLAY
            out.append(f'<rect x="{x}" y="{y}" width="{width:.2f}" height="14" fill="{colour}" fill-opacity="0.85">'
                       f'<title>{escape(e["cat"])} {escape(e["name"])}, {e["dur"] / 1e3:.3f} ms</title></rect>')
        else:
            out.append(f'<path d="M{x} {y + 17}l-3 -5h6z" fill="{RELEASE}"><title>release {escape(e["name"])}, '
                       f'{e["args"]["bytes"]} bytes</title></path>')
    return out


def legend():
    out, x = [], LEFT
    for colour, text in ((LIVE, "live activation bytes"), (RUN, "region runs"), (REPLAY, "region is replayed"),
                         (RELEASE, "output is released")):
        out.append(f'<rect x="{x}" y="12" width="12" height="12" fill="{colour}"/><text x="{x + 18}" y="22">{text}</text>')
        x += 190
    return out


def plot(events):
    """The picture as SVG text."""
    frame = Frame(events)
    seen = [kind(e["name"]) for e in events if e["ph"] == "X"]
    names = sorted(set(seen), key=seen.index)
    height = TOP + CURVE + 26 + ROW * len(names) + BOTTOM
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
           f'height="{height}" font-family="sans-serif" font-size="12" fill="#333">',
           '<title>Live activation bytes and regions over time</title>',
           f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>']
    out += legend() + axes(frame) + marks(frame, events, height) + [curve(frame, events)] + rows(frame, events, names)
    for ms in ticks(0, frame.span / 1e3, 8):
        out.append(f'<text x="{frame.x(frame.begin + ms * 1e3)}" y="{height - BOTTOM + 16}" '
                   f'text-anchor="middle">{ms:g}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2:g}" y="{height - 10}" text-anchor="middle">milliseconds</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    if len(sys.argv) not in (3, 4):
        raise SystemExit(__doc__)
    step = int(sys.argv[3]) if len(sys.argv) == 4 else None
    Path(sys.argv[2]).write_text(plot(read_events(sys.argv[1], step)))


if __name__ == "__main__":
    main()
