"""The tokenizer of Lethe gives the ids of the library `tokenizers`, to the last one, for the tokenizer of V4. On real
text, on this repository, on generated text and on every character there is. Environment: LETHE_TOKENIZE_TEXTS, the
program of tests/data/tokenize_texts.cpp; LETHE_TOKENIZER, a tokenizer.json (./bootstrap puts V4's there). Exits with 77
where `tokenizers` cannot be imported."""
import array
import os
import random
import struct
import subprocess
import sys
import unittest
from pathlib import Path

SKIPPED = 77
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("LETHE_TOKENIZE_TEXTS", "")
TOKENIZER = os.environ.get("LETHE_TOKENIZER", "")

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
try:
    import tokenizers
except ImportError as error:
    print(f"tokenizer_test.py: skipped: {error}; ./bootstrap --oracles installs it", file=sys.stderr)
    sys.exit(SKIPPED)
if not PROGRAM or not TOKENIZER:
    sys.exit("tokenizer_test.py: LETHE_TOKENIZE_TEXTS and LETHE_TOKENIZER must be set; run it by `ctest -R python.tokenizer`")
if not Path(TOKENIZER).is_file():
    sys.exit(f"tokenizer_test.py: {TOKENIZER} must be there; ./bootstrap puts it there")

ORACLE = tokenizers.Tokenizer.from_file(TOKENIZER)


def lethe_ids(texts):
    """The ids of each text (bytes); the program itself checks that decode() gives the text back."""
    request = b"".join(struct.pack("<I", len(text)) + text for text in texts)
    answer = subprocess.run([PROGRAM, TOKENIZER], input=request, stdout=subprocess.PIPE, check=True).stdout
    ids, at = [], 0
    for _ in texts:
        count, = struct.unpack_from("<I", answer, at)
        ids.append(array.array("i", answer[at + 4:at + 4 + 4 * count]).tolist())
        at += 4 + 4 * count
    assert at == len(answer)
    return ids


# Pieces of generated text. Escapes only: sources are ASCII.
CHINESE = "".join(chr(c) for c in range(0x4E00, 0x9FA6, 7)) + "\u9fa5\u9fa6\u9fff\u3400\U00020000\u3007"
JAPANESE = "".join(chr(c) for c in range(0x3040, 0x3100)) + "\u6f22\u5b57\u30fc\u3005\uff76\uff9e"
EMOJI = ["\U0001F600", "\U0001F468\u200D\U0001F469\u200D\U0001F467\u200D\U0001F466", "\U0001F44D\U0001F3FD", "\u2764\uFE0F",
         "\U0001F1E9\U0001F1EA", "1\uFE0F\u20E3", "\U0001F3F4\U000E0067\U000E0062\U000E007F"]
DIGITS = "0123456789\u0660\u0663\u00b2\u00bd\u2167\u0be7\uff11\U0001D7D8"
SPACES = " \t\n\r\v\f\u0085\u00a0\u1680\u180e\u2000\u200a\u200b\u2028\u2029\u202f\u205f\u3000\ufeff"
CONTROLS = "".join(chr(c) for c in [*range(0x20), *range(0x7F, 0xA0)]) + "\u200e\u202e\u2066"
PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~\u2014\u2026\u3002\uff0c\uff5c\u2581\u00ab\u20ac\u2211"
LETTERS = "abcXYZ\u00e4\u00df\u0130\u0131\u017f\u03a9\u0416\u05d0\u0627\u0e01\u0e31\u0915\u094d\u0937\u0301\u0308\ud55c\u1112\u1161"
CONTRACTIONS = ["don't", "I'LL", "we've", "it's", "'re", "'S"]
ADDED = sorted(ORACLE.get_added_tokens_decoder().items())
ADDED_TEXTS = [token.content for _, token in ADDED[:8] + ADDED[-480:]]


def run_of(rng, characters, most):
    return "".join(rng.choice(characters) for _ in range(rng.randint(1, most)))


def mixed_piece(rng):
    kind = rng.randrange(12)
    if kind == 0:
        return run_of(rng, SPACES, 5)
    if kind == 1:
        return rng.choice(" \n\t") * rng.randint(1, 40)
    if kind == 2:
        return rng.choice(CONTRACTIONS)
    if kind == 3:
        return rng.choice(ADDED_TEXTS)
    if kind == 4:  # nearly an added token
        text = rng.choice(ADDED_TEXTS)
        cut = rng.randrange(len(text) + 1)
        return text[:cut] + rng.choice(["", "<", " ", text[:1]]) + text[cut:]
    if kind == 5:
        return chr(rng.choice([rng.randrange(0x20, 0xD800), rng.randrange(0xE000, 0x30000)]))
    kinds = [CHINESE, JAPANESE, EMOJI, DIGITS, CONTROLS, PUNCTUATION + LETTERS]
    return run_of(rng, kinds[kind - 6], rng.choice([1, 3, 12]))


def mixed_text(rng, most_pieces):
    return "".join(mixed_piece(rng) for _ in range(rng.randint(0, most_pieces)))


class EqualIds(unittest.TestCase):
    def check(self, texts):
        texts = list(texts)
        got = lethe_ids([text.encode() for text in texts])
        for text, ids in zip(texts, got):
            want = ORACLE.encode(text, add_special_tokens=False).ids
            if ids != want:
                at = next((i for i, (a, b) in enumerate(zip(ids, want)) if a != b), min(len(ids), len(want)))
                self.fail(f"{ORACLE.decode(want[max(0, at - 4):at + 4], skip_special_tokens=False)!a} at token {at}: must be "
                          f"{want[at:at + 6]}, got {ids[at:at + 6]}")
        return got

    def test_shakespeare(self):
        text = (ROOT / "examples/data/shakespeare.txt").read_bytes().decode()
        (ids,) = self.check([text])
        self.assertGreater(len(ids), 400_000)

    def test_sources_of_this_repository(self):
        texts = []
        for path in sorted(ROOT.rglob("*")):
            parts = path.relative_to(ROOT).parts
            if not path.is_file() or parts[0].startswith(("build", ".git", ".venv", "out")) or path.stat().st_size > 1 << 20:
                continue
            try:
                texts.append(path.read_bytes().decode())
            except UnicodeDecodeError:  # golden tensors, fuzz seeds
                continue
        self.assertGreater(len(texts), 300)
        self.check(texts)

    def test_generated_texts_of_one_kind(self):
        rng = random.Random(1)
        for characters in (CHINESE, JAPANESE, EMOJI, DIGITS, SPACES, CONTROLS, PUNCTUATION, LETTERS, " \n", "a", " a1.\n"):
            self.check(run_of(rng, characters, most) for most in (1, 2, 3, 5, 8, 13, 40, 200, 2000) for _ in range(12))

    def test_generated_mixed_texts(self):
        rng = random.Random(2)
        self.check(mixed_text(rng, 30) for _ in range(6000))

    def test_added_tokens_inside_text(self):
        self.check(f"{left}{token.content}{right}" for _, token in ADDED for left, right in (("", ""), ("a", "b"), (" ", " 1")))

    def test_very_long_single_words(self):
        rng = random.Random(3)
        for characters in ("a", "ab", "abcdefghijklmnopqrstuvwxyz", CHINESE, " ", "\n", "-=", "\U0001F600"):
            self.check([run_of(rng, characters, 1) + "".join(rng.choices(characters, k=60_000))])

    def test_every_character(self):
        # Planes 4 to 13 hold none, 14 few, 15 and 16 private ones.
        codes = [*range(0xD800), *range(0xE000, 0x34000), *range(0xE0000, 0xE0200), *range(0x34000, 0x110000, 997)]
        every = [chr(code) for code in codes]
        self.check(" ".join(f"a{c}{c} {c}b1{c}" for c in every[begin:begin + 512]) for begin in range(0, len(every), 512))


class AnyBytes(unittest.TestCase):
    def test_invalid_utf8_comes_back_and_is_one_token_per_byte(self):
        rng = random.Random(4)
        texts = [rng.randbytes(rng.randrange(300)) for _ in range(2000)]
        texts += [mixed_text(rng, 10).encode()[rng.randrange(4):-1] for _ in range(2000)]
        ids = lethe_ids(texts + [b"the\xff\xfeman", b"the", b"man", b"\xff", b"\xfe"])
        whole, the, man, ff, fe = ids[-5:]
        self.assertEqual(whole, the + ff + fe + man)
        self.assertEqual((len(ff), len(fe)), (1, 1))


if __name__ == "__main__":
    unittest.main(verbosity=2)
