#!/usr/bin/env python3
"""Writes lethe/data/unicode_additions.cpp: the characters of Unicode 15.0 to 16.0, which PCRE2 10.42 (Unicode 14.0) does
not know, by general category. make_unicode_additions.py > lethe/data/unicode_additions.cpp
Needs a Python 3.11 (its unicodedata is 14.0.0) and the package unicodedata2 16.0.0."""
import sys
import unicodedata as old

import unicodedata2 as new

if (old.unidata_version, new.unidata_version) != ("14.0.0", "16.0.0"):
    sys.exit(f"must compare Unicode 14.0.0 with 16.0.0, got {old.unidata_version} and {new.unidata_version}")

ranges = []  # [category, first, last]
for code in range(0x110000):
    category = new.category(chr(code))
    if old.category(chr(code)) != "Cn" or category == "Cn":
        continue
    if ranges and ranges[-1][0] == category and ranges[-1][2] == code - 1:
        ranges[-1][2] = code
    else:
        ranges.append([category, code, code])

print("// Written by tools/make_unicode_additions.py: Unicode 16.0.0 without 14.0.0.")
print('#include "lethe/data/unicode_additions_impl.h"\n')
print("namespace lethe::detail {\nnamespace {\n")
print("// clang-format off\nconstexpr UnicodeAddition kAdditions[] = {")
cells = [f'{{"{category}", 0x{first:05X}, 0x{last:05X}}},' for category, first, last in ranges]
for begin in range(0, len(cells), 3):
    print("    " + " ".join(cells[begin:begin + 3]))
print("};\n// clang-format on\n\n}  // namespace\n")
print("std::span<const UnicodeAddition> unicode_additions() {\n  return kAdditions;\n}\n\n}  // namespace lethe::detail")
