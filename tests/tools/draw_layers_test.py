import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
sys.dont_write_bytecode = True

import check_layers
import draw_layers


class DrawLayers(unittest.TestCase):
    table = {"base": set(), "io": {"base"}, "core": {"base"}, "ops": {"base", "core"}, "train": {"ops", "core", "io"}}

    def test_the_committed_picture_is_what_the_tool_draws(self):
        table = draw_layers.present(check_layers.read_table(ROOT / check_layers.TABLE), ROOT)
        self.assertEqual((ROOT / draw_layers.PICTURE).read_text(), draw_layers.draw(table))

    def test_every_arrow_goes_to_a_lower_level(self):
        level = draw_layers.levels(self.table)
        self.assertEqual(level, {"base": 0, "io": 1, "core": 1, "ops": 2, "train": 3})

    def test_arrows_that_a_longer_way_implies_are_left_out(self):
        self.assertEqual(draw_layers.drawn_arrows(self.table), [("ops", "core"), ("train", "io"), ("train", "ops")])

    def test_every_folder_is_in_the_picture_once(self):
        text = draw_layers.draw(self.table)
        for folder in self.table:
            self.assertEqual(text.count(f">{folder}</text>"), 1)


if __name__ == "__main__":
    unittest.main()
