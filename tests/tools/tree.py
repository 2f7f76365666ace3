"""Builds small bad trees for the self-tests of the tree checks."""
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

TABLE = """base | words |
io | bytes | base
ops | operators | base core
core | tensors | base
"""


class TreeTest(unittest.TestCase):
    """A temporary tree; write() adds a file, problems() joins what the check under test says."""

    checker = None  # the module under test

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for layer in ("base", "io", "ops", "core"):
            (self.root / "lethe" / layer).mkdir(parents=True)
        self.write("docs/design/layers.txt", TABLE)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def problems(self):
        return "\n".join(self.checker.check(self.root))
