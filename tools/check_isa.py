#!/usr/bin/env python3
"""No kernel object compiled for one instruction set may define a symbol that another set's could define too.

    check_isa.py OBJECT [OBJECT ...]

Sources under lethe/kernels/cpu/isa/ are compiled once per instruction set. An inline function or template outside
the namespace of the set (of the standard library, say) becomes a weak symbol of the same name in every variant; the
linker keeps one of them, and a CPU without those instructions may run it. So: the name of every symbol that such an
object defines for others has lethe::kernels::<its set> in it, as its namespace or in its template arguments.
"""
import re
import subprocess
import sys

SHARED = {"DW.ref.__gxx_personality_v0"}  # a pointer of the compiler's, the same in all
VARIANT = re.compile(r"lethe_kernels_(\w+)\.dir")


def problems(path, listing, variant):
    """Lines of `nm -C` that break the rule, as messages."""
    out = []
    for line in listing.splitlines():
        match = re.match(r"[0-9a-f]+ (\S) (.*)", line)
        if not match:
            continue
        kind, name = match.groups()
        local = kind.islower() and kind not in "vwu"
        if not local and name not in SHARED and f"lethe::kernels::{variant}::" not in name:
            out.append(f"{path}: '{name}' must be in lethe::kernels::{variant}; move it there, or keep it out of cpu/isa/")
    return out


def main(paths):
    if not paths:
        sys.exit(__doc__)
    found = []
    for path in paths:
        match = VARIANT.search(path)
        if not match:
            sys.exit(f"check_isa: {path} is no object of a kernel variant (lethe_kernels_<set>.dir)")
        listing = subprocess.run(["nm", "-C", "--defined-only", path], check=True, capture_output=True, text=True)
        found += problems(path, listing.stdout, match.group(1))
    for message in found:
        print(message)
    if not found:
        print(f"check_isa: {len(paths)} objects keep to their instruction set")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
