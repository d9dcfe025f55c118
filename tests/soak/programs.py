#!/usr/bin/env python3
"""Every program of fixtures/programs again and again under `lockstep run`: code, culprits and line as in the table.

At world size 2 ten times, racy ones twenty times; at 3 and 4 twice. Resumable: what is done is kept in a file, and a
call goes on where the last one stopped. Prints `N of M done` after each run, and two counters that must be 0: false
alarms on healthy programs, and ranks named that the table does not name.
"""

import argparse
import json
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "programs"))

import judged  # noqa: E402
from judged import table  # noqa: E402


def pieces():
    """Round by round, so that a soak that is cut short has seen every program."""
    for n in range(20):
        for world, times in ((2, 10), (3, 2), (4, 2)):
            for row in table.ROWS:
                if world in row.worlds and n < (20 if row.racy and world == 2 else times):
                    yield f"w{world} {row.name} #{n}", row, world


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=75, help="stop after the run in which this is reached")
    parser.add_argument("--again", action="store_true", help="forget what is done")
    parser.add_argument("--only", default="", help="only runs whose name contains this: w3, loader.py, ...")
    options = parser.parse_args()
    build = pathlib.Path(os.environ.get("LOCKSTEP_BUILD_DIR", "build"))
    state = build / "soak-programs.json"
    done = {} if options.again or not state.exists() else json.loads(state.read_text())
    begun, todo = time.monotonic(), [p for p in pieces() if options.only in p[0]]
    for name, row, world in todo:
        if name in done:
            continue
        if time.monotonic() - begun > options.minutes * 60:
            break
        result = judged.run(row, world, build / "soak-programs" / name.replace(" ", "_").replace("/", "_"))
        done[name] = {"false_alarm": result.false_alarm, "wrong_culprit": result.wrong_culprit, "other": result.other}
        state.write_text(json.dumps(done))
        print(f"{sum(p[0] in done for p in todo)} of {len(todo)} done  {name}: {result.problems() or 'as it should be'}",
              flush=True)
    counted = [done[p[0]] for p in todo if p[0] in done]
    totals = {key: sum(bool(one[key]) for one in counted) for key in ("false_alarm", "wrong_culprit", "other")}
    print(f"{len(counted)} of {len(todo)} runs: false alarms {totals['false_alarm']}, "
          f"wrong culprits {totals['wrong_culprit']}; otherwise not as in the table {totals['other']}")
    return 1 if any(totals.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
