#!/usr/bin/env python3
"""The numbers of a program are the same to the last bit with and without --watch: what it prints of its parameters and
of its random state, for loops of fixtures/programs/replicas.py.

    test_watch.py [KIND ...]
"""

import os
import pathlib
import subprocess
import sys
import tempfile

import judged
from judged import table

RANKS = 2
KINDS = ("good", "accumulation", "two_optimizers", "by_hand", "skipped_step")  # Where none is named.


def printed(kind: str, *options: str) -> list:
    with tempfile.TemporaryDirectory(prefix="lockstep-watch-") as scratch:
        run = pathlib.Path(scratch) / "run"
        row = table.Row("replicas.py", kind, options=options)
        subprocess.run(judged.command(row, RANKS, run), cwd=judged.SOURCE, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=judged.DEADLINE_S,
                       env={**os.environ, "TMPDIR": scratch}, check=False)
        return [(run / "logs" / f"{rank}.out").read_text() for rank in range(RANKS)]


def main() -> int:
    kinds = sys.argv[1:] or KINDS
    wrong = 0
    for kind in kinds:
        without, watched = printed(kind), printed(kind, "--watch")
        same = without == watched and all(kind in text for text in without)
        wrong += not same
        print(f"{'ok' if same else 'WRONG':5} {kind}" + ("" if same else f"\n{without}\n{watched}"), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
