"""The rule of tools/check_isa.py on listings as nm prints them."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
import check_isa  # noqa: E402

GOOD = """0000000000000000 t lethe::kernels::avx2::(anonymous namespace)::row(float*)
0000000000000010 T lethe::kernels::avx2::forward(lethe::kernels::Forward const&)
0000000000000000 r .LC0
"""


class CheckIsa(unittest.TestCase):
    def test_local_symbols_and_those_of_the_namespace_pass(self):
        self.assertEqual(check_isa.problems("x.o", GOOD, "avx2"), [])

    def test_a_template_of_the_namespace_may_be_weak(self):
        line = "0000000000000020 W void lethe::kernels::avx2::tile<6>(float const*)\n"
        self.assertEqual(check_isa.problems("x.o", GOOD + line, "avx2"), [])

    def test_a_symbol_that_all_sets_share_is_named(self):
        found = check_isa.problems("x.o", GOOD + "0000000000000020 W std::vector<float>::resize(long)\n", "avx2")
        self.assertEqual(len(found), 1)
        self.assertIn("std::vector<float>::resize", found[0])

    def test_a_symbol_of_another_namespace_is_named(self):
        self.assertEqual(len(check_isa.problems("x.o", GOOD, "portable")), 1)


if __name__ == "__main__":
    unittest.main()
