#!/usr/bin/env python3
"""Programs made of runs: lockstep says of them what it said of the run, and nothing of their fixed twins.

    test_exported.py [--all] [--rows] [PART OF A NAME ...]

Of saved runs (a sample; --all: all of them), or with --rows of programs of fixtures/programs that do not match or
deadlock, run anew. A run that cannot be shown is refused, which is right; at least nine of ten others must be right.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import exported
import judged
from judged import table

HISTORIES = pathlib.Path(__file__).resolve().parents[2] / "fixtures" / "histories"
SAMPLE = ("hang-epochs", "hang-two-groups", "hang-halo", "mutant-dtype-differs", "hang-question")
FAMILIES = ("LS2", "LS30")


def unpacked(archive: pathlib.Path, place: pathlib.Path) -> pathlib.Path:
    subprocess.run(["tar", "xJf", str(archive)], cwd=place, check=True)
    return place


def row_run(row: table.Row, place: pathlib.Path) -> pathlib.Path:
    world = 3 if 3 in row.worlds else row.worlds[0]
    command = judged.command(row, world, place / "run")
    subprocess.run(command, cwd=judged.SOURCE, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, timeout=judged.DEADLINE_S, env={**os.environ, "TMPDIR": str(place)})
    return place / "run"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--rows", action="store_true")
    parser.add_argument("parts", nargs="*")
    options = parser.parse_args()
    if options.rows:
        makers = [(row.name, lambda place, row=row: row_run(row, place)) for row in table.ROWS
                  if row.code.startswith(FAMILIES)]
    else:
        makers = [(path.name.removesuffix(".tar.xz"), lambda place, path=path: unpacked(path, place))
                  for path in sorted(HISTORIES.rglob("*.tar.xz"))]
        if not options.all and not options.parts:
            makers = [(name, make) for name, make in makers if name in SAMPLE]
    right = wrong = refused = 0
    for name, make in makers:
        if not all(part in name for part in options.parts):
            continue
        with tempfile.TemporaryDirectory(prefix="lockstep-export-") as scratch:
            result = exported.replay(make(pathlib.Path(scratch)))
        refused += bool(result.refused)
        right += result.is_right and not result.refused
        wrong += not result.is_right
        word = "refused" if result.refused else "ok" if result.is_right else "WRONG"
        print(f"{word:7} {name}  run {result.run}, again {result.again}, fixed {result.fixed}  {result.refused}", flush=True)
    print(f"{right} right, {wrong} wrong, {refused} refused")
    return 0 if right and right >= 9 * wrong else 1


if __name__ == "__main__":
    sys.exit(main())
