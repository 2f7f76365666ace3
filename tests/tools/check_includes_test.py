import unittest

from tree import TreeTest

import check_includes

HOME = "/" + "home/someone"


class CheckIncludes(TreeTest):
    checker = check_includes

    def test_a_clean_tree_passes(self):
        self.write("lethe/ops/a.cpp", "#include <ATen/core/Tensor.h>\n")
        self.write("lethe/io/a.cpp", '#include <vector>\nint f() { refuse("E-ST-JSON"); }\n')
        self.write("tests/io/a_test.cpp", "// [E-ST-JSON]\n")
        self.assertEqual(self.problems(), "")

    def test_the_heavy_torch_headers_are_forbidden_everywhere(self):
        for header in ("torch/torch.h", "torch/all.h", "torch/extension.h"):
            self.write("tests/ops/a_test.cpp", f"#include <{header}>\n")
            self.assertIn(f"must not include {header}", self.problems())

    def test_torch_free_folders_know_no_torch(self):
        for folder in check_includes.TORCH_FREE:
            self.write(f"lethe/{folder}/x.cpp", "#include <c10/util/Half.h>\n")
        self.assertEqual(self.problems().count("must not know torch"), len(check_includes.TORCH_FREE))

    def test_cuda_files_know_no_torch(self):
        self.write("lethe/ops/a.cu", "#include <ATen/ATen.h>\n")
        self.assertIn("must not know torch", self.problems())

    def test_non_ascii_sources_fail_and_data_may_be_anything(self):
        self.write("lethe/io/a.cpp", "// caf\u00e9\n")
        self.write("examples/data/text.txt", "caf\u00e9\n")
        self.assertIn("lethe/io/a.cpp:1: must be ASCII", self.problems())
        self.assertNotIn("examples/data", self.problems())

    def test_paths_of_one_machine_fail_and_relative_ones_pass(self):
        self.write("tools/a.py", f"x = '{HOME}/x'\n")
        self.write("tools/b.py", f"x = 'a{HOME}'\n")
        self.assertIn("tools/a.py:1: must not hold a path of one machine", self.problems())
        self.assertNotIn("tools/b.py", self.problems())

    def test_a_rule_without_a_test_is_named_in_each_spelling(self):
        self.write("lethe/io/a.cpp", 'f("plan [SC7] x"); f("--impl a [B]: must"); f("E-ST-NEW"); f("x [T,D], [T]");\n')
        text = self.problems()
        for rule in ("SC7", "B", "E-ST-NEW"):
            self.assertIn(f"rule [{rule}] must be named by a test", text)
        self.assertNotIn("[T]", text)

    def test_a_longer_rule_does_not_cover_a_shorter_one(self):
        self.write("lethe/io/a.cpp", 'f("E-ST-NAME");\n')
        self.write("tests/io/a_test.cpp", 'check("E-ST-NAME-LONG", "XE-ST-NAME");\n')
        self.assertIn("rule [E-ST-NAME]", self.problems())
        self.write("tests/io/a_test.cpp", 'check("[E-ST-NAME]");\n')
        self.assertEqual(self.problems(), "")

    def test_rules_in_comments_do_not_count(self):
        self.write("lethe/io/a.h", "/// CheckpointError [E-ST-GONE]\n")
        self.assertEqual(self.problems(), "")


if __name__ == "__main__":
    unittest.main()
