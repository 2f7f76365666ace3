import unittest

from tree import TreeTest

import check_sizes
from cpp_text import functions


def body(lines):
    return "void long_one(int a) {\n" + "  a += 1;\n" * (lines - 2) + "}\n"


class CheckSizes(TreeTest):
    checker = check_sizes

    def problems(self):  # without the real tree's exemptions
        return "\n".join(check_sizes.check(self.root, {}))

    def test_files_at_their_limits_pass_and_one_line_more_fails(self):
        limits = {"lethe/io/a.cpp": 600, "lethe/io/a.h": 400, "lethe/ops/a.cpp": 200,
                  "lethe/ops/reference/a.cpp": 600, "tests/io/a_test.cpp": 600, "tests/support/a.h": 600}
        for name, limit in limits.items():
            self.write(name, "\n" * limit)
        self.assertEqual(self.problems(), "")
        for name, limit in limits.items():
            self.write(name, "\n" * (limit + 1))
        text = self.problems()
        for name, limit in limits.items():
            self.assertRegex(text, rf"{name}: .* at most {limit} lines, got {limit + 1}")

    def test_a_function_of_101_lines_fails_and_of_100_passes(self):
        self.write("lethe/io/a.cpp", "namespace lethe {\n" + body(100) + "}\n")
        self.assertEqual(self.problems(), "")
        self.write("lethe/io/a.cpp", "namespace lethe {\n" + body(101) + "}\n")
        self.assertIn("lethe/io/a.cpp:2: function long_one must have at most 100 lines, got 101", self.problems())

    def test_nine_parameters_fail_outside_kernels(self):
        nine = ", ".join(f"std::map<int, int> p{i}" for i in range(9))
        for folder in ("io", "kernels"):
            self.write(f"lethe/{folder}/a.cpp", f"void wide({nine}) {{}}\n")
        self.assertEqual(self.problems().count("parameters, got 9"), 1)

    def test_an_exemption_silences_only_its_own_entry_and_must_be_needed(self):
        self.write("lethe/io/a.cpp", body(101))
        self.write("lethe/io/b.cpp", body(101))
        exempt = {("lethe/io/a.cpp", "long_one"): "reason", ("lethe/io/c.cpp", None): "reason"}
        text = "\n".join(check_sizes.check(self.root, exempt))
        self.assertNotIn("lethe/io/a.cpp:", text)
        self.assertIn("lethe/io/b.cpp:1: function long_one", text)
        self.assertIn("exemption of ('lethe/io/c.cpp', None) is no longer needed", text)

    def test_braces_in_comments_strings_and_macros_do_not_count(self):
        text = ('#define M(x) \\\n  { x }\nnamespace a {\n// {\nint f(int a) {\n  const char* s = "}{";\n'
                "  char c = '{';\n  auto g = [](int b) { return b; };\n  return g(a);  /* } */\n}\n"
                "class B : public C {\n  int h() const { return 1'000; }\n};\n}\n")
        self.assertEqual(functions(text), [("f", 5, 6, 1), ("h", 12, 1, 0)])


if __name__ == "__main__":
    unittest.main()
