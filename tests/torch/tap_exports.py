#!/usr/bin/env python3
"""The tap as it lies in a user's process exports nothing of ours: usage: tap_exports.py NM LIBRARY

What remains is torch's own: type information by which exceptions and casts are recognised across libraries, and inline
functions of its headers. And __cxa_throw, which the tap passes on (harness/tap/throw_site.cc).
"""

import re
import subprocess
import sys

EXPECTED = re.compile(r"(typeinfo( name)?|vtable|guard variable) for (c10|c10d|torch|at)::|(c10|c10d|torch|at|std)::|__cxa_throw$")


def main() -> int:
    nm, library = sys.argv[1:]
    listed = subprocess.run([nm, "-DC", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    names = [line.split(maxsplit=2)[2] for line in listed.splitlines()]
    exported = [name for name in names if not EXPECTED.match(name)]
    print("\n".join(f"exported: {name}" for name in exported) or f"{len(names)} exported names, none of them ours")
    return 1 if exported or "__cxa_throw" not in names else 0


if __name__ == "__main__":
    sys.exit(main())
