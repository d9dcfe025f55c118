#!/usr/bin/env python3
"""Every program of fixtures/programs once, at world size 2: code, culprits and line as its table says.

    test_programs.py [--world W] [--keep DIR] [--jobs N] ['PART OF A NAME' ...]
    test_programs.py --list | --row NAME        the names, and one of them, which is a test of its own in ctest

Three at a time: much of a run is waiting, for Python to import torch or for a limit to pass. A run that said too little
is repeated once, after the others: on a machine that is busy with other things a port is taken or a limit passes before
a rank came to what it shows. A false alarm or an innocent rank that is named is never forgiven.
"""

import argparse
import concurrent.futures
import pathlib
import sys
import time

import judged
from judged import table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--keep", type=pathlib.Path, help="where run directories of wrong judgements go")
    parser.add_argument("--jobs", type=int, default=3, help="programs at a time")
    parser.add_argument("--verbose", action="store_true", help="print what lockstep says")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--row")
    parser.add_argument("parts", nargs="*")
    options = parser.parse_args()
    rows = [row for row in table.ROWS if options.world in row.worlds and options.row in (None, row.name)
            and (not options.parts or any(part in row.name for part in options.parts))]
    if options.list:
        print("\n".join(row.name for row in rows))
        return 0

    def run(row: table.Row) -> judged.Judged:
        begun = time.monotonic()
        kept = options.keep / row.name.replace(" ", "_").replace("/", "_") if options.keep else None
        result = judged.run(row, options.world, kept)
        lines = [f"{'ok' if result.is_right else 'WRONG':5} {row.name}  {time.monotonic() - begun:.1f} s  {result.problems()}"]
        print("\n".join(lines + [result.said] * options.verbose), flush=True)
        return result

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as jobs:
        results = list(jobs.map(run, rows))
    repeated = [i for i, r in enumerate(results) if not (r.is_right or r.false_alarm or r.wrong_culprit)]
    for i in repeated:
        results[i] = run(rows[i])
    print(f"{sum(r.is_right for r in results)} of {len(results)} right, {len(repeated)} run twice; "
          f"false alarms {sum(bool(r.false_alarm) for r in results)}, "
          f"wrong culprits {sum(bool(r.wrong_culprit) for r in results)}")
    return 0 if results and all(r.is_right for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
