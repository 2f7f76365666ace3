import json
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ET
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import plot_trace

SVG = "{http://www.w3.org/2000/svg}"


def mark(name, ts):
    return {"name": name, "cat": "mark", "ph": "i", "s": "p", "ts": ts, "pid": 0, "tid": 0, "args": {}}


def sample(ts, count):
    return {"name": "activations", "ph": "C", "ts": ts, "pid": 0, "tid": 0, "args": {"bytes": count}}


def span(cat, name, ts, dur):
    return {"name": name, "cat": cat, "ph": "X", "ts": ts, "dur": dur, "pid": 0, "tid": 0, "args": {}}


EVENTS = [{"name": "process_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": "rank 0"}},
          mark("step 1", 0), sample(0, 0), span("run", "L0.mb0.sparse", 10, 5), sample(15, 4_000_000),
          {"name": "L0.mb0.sparse", "cat": "release", "ph": "i", "s": "t", "ts": 20, "pid": 0, "tid": 0,
           "args": {"bytes": 3_000_000}},
          sample(20, 1_000_000), span("replay", "L0.mb0.sparse", 40, 10), mark("end of step 1", 60),
          mark("step 2", 70), sample(75, 9_000_000), mark("end of step 2", 80)]


class PlotTrace(unittest.TestCase):
    def read(self, events, step=None):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            path.write_text(json.dumps({"traceEvents": events}))
            return plot_trace.read_events(path, step)

    def test_one_step_is_cut_out_by_its_marks(self):
        events = self.read(EVENTS, 1)
        self.assertEqual(max(e["args"]["bytes"] for e in events if e["ph"] == "C"), 4_000_000)
        with self.assertRaises(SystemExit):
            self.read(EVENTS, 3)

    def test_a_trace_without_counted_bytes_is_refused(self):
        with self.assertRaises(SystemExit):
            self.read([e for e in EVENTS if e["ph"] != "C"])

    def test_runs_replays_and_releases_stand_in_the_row_of_their_sub_graph(self):
        root = ET.fromstring(plot_trace.plot(self.read(EVENTS, 1)))
        bars = [r for r in root.iter(SVG + "rect") if r.find(SVG + "title") is not None]
        self.assertEqual([b.find(SVG + "title").text for b in bars],
                         ["run L0.mb0.sparse, 0.005 ms", "replay L0.mb0.sparse, 0.010 ms"])
        self.assertEqual(bars[0].get("y"), bars[1].get("y"))
        self.assertLess(float(bars[0].get("x")), float(bars[1].get("x")))
        titles = [t.text for t in root.iter(SVG + "title")]
        self.assertIn("release L0.mb0.sparse, 3000000 bytes", titles)

    def test_more_bytes_lie_higher(self):
        frame = plot_trace.Frame(self.read(EVENTS))
        self.assertLess(frame.y(4_000_000), frame.y(1_000_000))
        self.assertEqual(frame.y(9_000_000), plot_trace.TOP)


if __name__ == "__main__":
    unittest.main()
