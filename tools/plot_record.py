#!/usr/bin/env python3
"""Draws the loss curve of a run record as SVG. plot_record.py RUN.JSONL OUT.SVG"""
import json
import math
import sys
from pathlib import Path

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 400, 58, 18, 20, 52


def read_record(path):
    """(start event, [(step, loss)], [(step, validation loss)]) of a record; a half-written last line is ignored."""
    start, train, valid = None, [], []
    for line in Path(path).read_text().split("\n")[:-1]:
        event = json.loads(line)
        if event["event"] == "start":
            start = event
        elif event["event"] == "step":
            train.append((event["step"], event["loss"]))
        elif event["event"] == "eval":
            valid.append((event["step"], event["valid_loss"]))
    if start is None or not train:
        raise SystemExit(f"{path}: must have a start event and a step, got {len(train)} steps")
    return start, train, valid


def tick_step(span, wanted):
    """The largest of 1, 2, 5 times a power of ten that gives at least about `wanted` ticks."""
    power = 10.0 ** math.floor(math.log10(span / wanted))
    return max(power * factor for factor in (1, 2, 5) if power * factor <= span / wanted)


def ticks(low, high, wanted):
    step = tick_step(high - low, wanted)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 6) for i in range(first, math.floor(high / step + 1e-9) + 1)]


class Frame:
    """From steps and losses to pixels."""

    def __init__(self, last_step, low, high):
        self.last_step, self.low, self.high = last_step, low, high

    def x(self, step):
        return round(LEFT + (WIDTH - LEFT - RIGHT) * step / self.last_step, 1)

    def y(self, loss):
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (self.high - loss) / (self.high - self.low), 1)

    def line(self, points, colour, width):
        path = " ".join(f"{self.x(step)},{self.y(loss)}" for step, loss in points)
        return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>'


def axes(frame):
    out, right, bottom = [], WIDTH - RIGHT, HEIGHT - BOTTOM
    for loss in ticks(frame.low, frame.high, 5):
        y = frame.y(loss)
        out.append(f'<path d="M{LEFT} {y}H{right}" stroke="#e4e4ea"/>'
                   f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{loss:g}</text>')
    for step in ticks(0, frame.last_step, 5):
        out.append(f'<text x="{frame.x(step)}" y="{bottom + 18}" text-anchor="middle">{step:g}</text>')
    out.append(f'<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="#556"/>')
    out.append(f'<text x="{(LEFT + right) / 2:g}" y="{HEIGHT - 12}" text-anchor="middle">step</text>')
    out.append(f'<text transform="translate(14 {(TOP + bottom) / 2:g}) rotate(-90)" text-anchor="middle">'
               'nats per byte</text>')
    return out


def legend(entries):
    out = []
    for i, (colour, text) in enumerate(entries):
        y = TOP + 16 + 20 * i
        out.append(f'<path d="M{WIDTH - 330} {y - 4}h24" stroke="{colour}" stroke-width="3"/>'
                   f'<text x="{WIDTH - 298}" y="{y}">{text}</text>')
    return out


def plot(start, train, valid):
    """The curve as SVG text."""
    bigram = start["bigram_entropy"]
    losses = [loss for _, loss in train + valid] + [bigram]
    frame = Frame(max(train[-1][0], 1), math.floor(min(losses) * 2 - 0.2) / 2, math.ceil(max(losses) * 2) / 2)
    entries = [("#9db4dd", "training loss, each step"), ("#c8553d", "validation loss")]
    if valid:
        entries[1] = ("#c8553d", f"validation loss, {valid[-1][1]:.3f} at step {valid[-1][0]}")
    entries.append(("#777", f"a table of byte pairs, {bigram:.2f}"))
    y = frame.y(bigram)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
           f'height="{HEIGHT}" font-family="sans-serif" font-size="13" fill="#333">',
           '<title>Loss over the steps of a run</title>', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>']
    out += axes(frame)
    out.append(f'<path d="M{LEFT} {y}H{WIDTH - RIGHT}" stroke="#777" stroke-width="1.5" stroke-dasharray="6 4"/>')
    out.append(frame.line(train, "#9db4dd", 1.5))
    out.append(frame.line(valid, "#c8553d", 2.5))
    out += [f'<circle cx="{frame.x(step)}" cy="{frame.y(loss)}" r="3.5" fill="#c8553d"/>' for step, loss in valid]
    return "\n".join(out + legend(entries) + ["</svg>"]) + "\n"


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    Path(sys.argv[2]).write_text(plot(*read_record(sys.argv[1])))


if __name__ == "__main__":
    main()
