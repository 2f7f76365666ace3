import unittest

from tree import TABLE, TreeTest

import check_layers


class CheckLayers(TreeTest):
    checker = check_layers

    def test_a_tree_that_follows_the_table_passes(self):
        self.write("lethe/base/error.h", "#pragma once\n")
        self.write("lethe/core/a.cpp", '#include "lethe/base/error.h"\n#include <vector>\n')
        self.write("lethe/ops/a.cpp", '#include "lethe/core/a.h"\n#include "lethe/ops/b.h"\n')
        self.write("lethe/ops/CMakeLists.txt", "lethe_layer(ops TORCH\n  SOURCES a.cpp\n  USES core base)\n")
        self.assertEqual(self.problems(), "")

    def test_a_foreign_arrow_is_named_with_its_line(self):
        self.write("lethe/io/a.cpp", '\n  # include "lethe/core/a.h"\n')
        self.assertIn("lethe/io/a.cpp:2: 'io' must include only ['base'], got lethe/core/a.h", self.problems())

    def test_an_arrow_in_angle_brackets_counts(self):
        self.write("lethe/io/a.h", "#include <lethe/ops/a.h>\n")
        self.assertIn("got lethe/ops/a.h", self.problems())

    def test_a_folder_without_a_row_fails(self):
        (self.root / "lethe/extra").mkdir()
        self.assertIn("lethe/extra: must have a row", self.problems())

    def test_a_cycle_of_the_table_fails(self):
        self.write("docs/design/layers.txt", TABLE.replace("base | words |", "base | words | ops"))
        self.assertIn("base -> ops -> base", self.problems())

    def test_a_cycle_of_includes_inside_one_folder_fails(self):
        self.write("lethe/io/a.h", '#include "lethe/io/b.h"\n')
        self.write("lethe/io/b.h", '#include "lethe/io/a.h"\n')
        self.assertIn("lethe/io/a.h -> lethe/io/b.h -> lethe/io/a.h", self.problems())

    def test_an_arrow_to_an_unknown_folder_fails(self):
        self.write("docs/design/layers.txt", TABLE + "train | all | model\n")
        self.assertIn("'train' may include 'model', which has no row", self.problems())

    def test_cmake_must_agree_with_the_table_and_the_includes(self):
        self.write("lethe/ops/a.cpp", '#include "lethe/core/a.h"\n')
        self.write("lethe/ops/CMakeLists.txt", "lethe_layer(ops SOURCES a.cpp USES io)  # core\n")
        text = self.problems()
        self.assertIn("USES io is no arrow", text)
        self.assertIn("USES must name 'core'", text)
        self.assertIn("USES names 'io', which no file", text)

    def test_a_layer_with_another_name_than_its_folder_fails(self):
        self.write("lethe/io/CMakeLists.txt", "lethe_layer(core SOURCES a.cpp)\n")
        self.assertIn("named after its folder, got 'core'", self.problems())

    def test_a_malformed_or_repeated_row_stops_the_check(self):
        for row in ("data | duty\n", "io | again | base\n", "data | | base\n"):
            self.write("docs/design/layers.txt", TABLE + row)
            with self.assertRaises(SystemExit):
                self.problems()


if __name__ == "__main__":
    unittest.main()
