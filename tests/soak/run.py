#!/usr/bin/env python3
"""Every program of fixtures/programs again and again under `lockstep run`: code, culprits and line as in the table.

At world size 2 ten times, racy ones twenty times; at 3 and 4 twice. Resumable: what is done is kept in a file, which
exit.py shares, and a call goes on where the last one stopped. Prints `N of M done` after each run, and two counters
that must be 0: false alarms on healthy programs, and ranks named that the table does not name.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "programs"))

import repeated  # noqa: E402
from judged import table  # noqa: E402


def pieces():
    """Round by round, so that a soak that is cut short has seen every program."""
    for n in range(20):
        for world, times in ((2, 10), (3, 2), (4, 2)):
            for row in table.ROWS:
                if world in row.worlds and n < (20 if row.racy and world == 2 else times):
                    yield repeated.Piece(row, world, n)


def main() -> int:
    options = repeated.options(__doc__)
    todo = [piece for piece in pieces() if options.only in piece.name]
    return 0 if repeated.run(todo, options) else 1


if __name__ == "__main__":
    sys.exit(main())
