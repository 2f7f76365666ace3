"""Token files against an independent implementation in numpy. indexed_test.py PATH-OF-indexed_tool"""
import random
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import numpy as np
except ImportError:
    print("skipped: numpy is not installed")
    sys.exit(77)

CODES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16}
MAGIC = b"MMIDIDX\x00\x00"


def write_pair(name, sequences, document_ends, dtype, modes=None):
    """sequences: lists of ids; document_ends: the number of sequences after which each document ends."""
    code = next(c for c, d in CODES.items() if d == dtype)
    lengths = np.array([len(s) for s in sequences], "<i4")
    pointers = np.concatenate([[0], np.cumsum(lengths, dtype="<i8")])[:-1] * np.dtype(dtype).itemsize
    with open(f"{name}.idx", "wb") as idx:
        idx.write(MAGIC + np.array([1], "<u8").tobytes() + bytes([code]))
        idx.write(np.array([len(sequences), len(document_ends) + 1], "<u8").tobytes())
        idx.write(lengths.tobytes() + pointers.astype("<i8").tobytes())
        idx.write(np.array([0] + document_ends, "<i8").tobytes())
        if modes is not None:
            idx.write(np.array(modes, "i1").tobytes())
    with open(f"{name}.bin", "wb") as data:
        for sequence in sequences:
            data.write(np.array(sequence, np.dtype(dtype).newbyteorder("<")).tobytes())


def read_pair(name):
    """(dtype, documents as lists of ids)"""
    index = np.memmap(f"{name}.idx", mode="r", order="C")
    assert bytes(index[:9]) == MAGIC
    version, = np.frombuffer(index, "<u8", 1, 9)
    assert version == 1
    dtype = np.dtype(CODES[int(index[17])])
    sequences, entries = (int(n) for n in np.frombuffer(index, "<u8", 2, 18))
    lengths = np.frombuffer(index, "<i4", sequences, 34)
    pointers = np.frombuffer(index, "<i8", sequences, 34 + 4 * sequences)
    documents = np.frombuffer(index, "<i8", entries, 34 + 12 * sequences)
    assert index.size == 34 + 12 * sequences + 8 * entries
    data = Path(f"{name}.bin").read_bytes()
    ids = [np.frombuffer(data, dtype, int(n), int(p)).tolist() for n, p in zip(lengths, pointers)]
    return dtype.name, [sum(ids[a:b], []) for a, b in zip(documents[:-1], documents[1:])]


class IndexedTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.name = str(Path(folder.name) / "data")
        self.random = random.Random(5)

    def tool(self, *arguments, text=""):
        done = subprocess.run([TOOL, *arguments], input=text, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def ids(self, count, low, high):
        return [self.random.randint(low, high) for _ in range(count)]

    def test_we_read_what_numpy_wrote_in_every_type(self):
        for dtype in CODES.values():
            info = np.iinfo(dtype)
            sequences = [self.ids(n, int(info.min), int(info.max)) for n in (3, 0, 1, 200, 7)]
            write_pair(self.name, sequences, [2, 3, 3, 5], dtype, modes=self.random.choice([None, [0, 1, 0, 1, 0]]))
            lines = self.tool("read", self.name).splitlines()
            documents = [sequences[0], sequences[2], [], sequences[3] + sequences[4]]
            self.assertEqual(lines[0], np.dtype(dtype).name)
            self.assertEqual([[int(w) for w in line.split()] for line in lines[1:]], documents)

    def test_numpy_reads_what_we_wrote_in_every_type(self):
        for dtype, most in (("uint8", 255), ("uint16", 65535), ("int32", 2**31 - 1)):
            documents = [self.ids(n, 0, most) for n in (1, 5, 3000)]
            text = "".join(" ".join(map(str, d)) + "\n" for d in documents)
            self.tool("write", self.name, dtype, text=text)
            self.assertEqual(read_pair(self.name), (dtype, documents))
            self.assertFalse(Path(self.name + ".mask.idx").exists())

    def test_the_mask_is_a_pair_of_the_same_shape_in_both_directions(self):
        self.tool("write", self.name, "uint16", text="!1 2\n!3\n4 !5 6\n")
        self.assertEqual(read_pair(self.name), ("uint16", [[1, 2], [3], [4, 5, 6]]))
        self.assertEqual(read_pair(self.name + ".mask"), ("uint8", [[0, 1], [0], [1, 0, 1]]))
        write_pair(self.name + ".mask", [[1, 1], [1], [0, 1, 1]], [1, 2, 3], np.uint8)
        self.assertEqual(self.tool("read", self.name), "uint16\n1 2\n3\n!4 5 6\n")


if __name__ == "__main__":
    TOOL = sys.argv.pop(1)
    unittest.main()
