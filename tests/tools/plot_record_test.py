import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import plot_record

EVENTS = [{"event": "start", "bigram_entropy": 2.5}, {"event": "step", "step": 1, "loss": 5.5},
          {"event": "eval", "step": 1, "valid_loss": 5.25}, {"event": "step", "step": 2, "loss": 5.0}]


class PlotRecord(unittest.TestCase):
    def read(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run.jsonl"
            path.write_text(text)
            return plot_record.read_record(path)

    def test_a_record_gives_its_curves_and_a_half_written_last_line_is_ignored(self):
        text = "".join(json.dumps(event) + "\n" for event in EVENTS) + '{"event":"st'
        self.assertEqual(self.read(text), (EVENTS[0], [(1, 5.5), (2, 5.0)], [(1, 5.25)]))

    def test_a_record_without_a_step_is_refused(self):
        with self.assertRaises(SystemExit):
            self.read(json.dumps(EVENTS[0]) + "\n")

    def test_the_plot_names_the_last_validation_loss_and_the_table_of_byte_pairs(self):
        text = plot_record.plot(EVENTS[0], [(1, 5.5), (2, 5.0)], [(1, 5.25)])
        self.assertIn("validation loss, 5.250 at step 1", text)
        self.assertIn("a table of byte pairs, 2.50", text)

    def test_a_lower_loss_lies_lower(self):
        frame = plot_record.Frame(10, 1, 6)
        self.assertGreater(frame.y(2), frame.y(3))


if __name__ == "__main__":
    unittest.main()
