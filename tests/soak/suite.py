#!/usr/bin/env python3
"""The suite again and again: no finding on what is right, every mutant caught wherever it strikes.

Pieces: 20 repetitions of the whole suite, a seed each, the second half of them with every core loaded by something
else, and 50 draws of rank, step and bucket for all mutants. Resumable: what is done is kept in a file, and a call goes
on where the last one stopped. Prints `N of M done` after each piece. Each run is also judged again by `check`, its
report deleted first: it must say the same.
"""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "programs"))

import repeated  # noqa: E402

REPETITIONS, DRAWS = 20, 50


def run_suite(program: str, *arguments: str) -> dict:
    with tempfile.TemporaryDirectory(prefix="lockstep-soak-") as scratch:
        run = pathlib.Path(scratch) / "run"
        done = subprocess.run([program, "suite", *arguments, "--run-dir", str(run), "--format", "json"],
                              cwd=scratch, capture_output=True, stdin=subprocess.DEVNULL)
        if done.returncode not in (0, 1, 2):
            raise SystemExit(f"lockstep ended with {done.returncode}: {done.stderr.decode()}")
        report = json.loads(done.stdout)
        for name in ("report.json", "report.txt"):
            (run / name).unlink()
        again = subprocess.run([program, "check", str(run), "--format", "json"], cwd=scratch, capture_output=True,
                               stdin=subprocess.DEVNULL)
        report["judged_alike"] = without_times(json.loads(again.stdout or b"{}")) == without_times(report)
        return report


def without_times(value):
    """Durations out of a report: all that may differ when it is judged again."""
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k not in ("wall_s", "judged_alike")}
    return [without_times(v) for v in value] if isinstance(value, list) else value


def judge(report: dict) -> dict:
    """False alarms, mutants that were missed or blamed on the wrong ranks, and what stayed undecided."""
    cases = report["cases"]
    return {
        "false_alarms": [f"{f['case']}: {f['headline']}" for f in report["findings"]],
        "missed": [f"{c['id']}: {c['reason']}" for c in cases if c["mutants"] and c["verdict"] != "pass"],
        "undecided": [f"{c['id']}: {c['reason']}" for c in cases if not c["mutants"] and c["verdict"] == "undecided"],
        "judged_otherwise": [] if report["judged_alike"] else ["check says something else of the same run"],
        "wall_s": report["wall_s"],
        "cases": len(cases),
    }


@dataclasses.dataclass(frozen=True)
class Piece:
    name: str
    loaded: bool
    arguments: tuple


def pieces():
    for i in range(REPETITIONS):
        yield Piece(f"repetition {i}", i >= REPETITIONS // 2, ("--seed", str(1 + i)))
    for seed in range(1000, 1000 + DRAWS):
        yield Piece(f"draw {seed}", False, ("--implementation", "mutant", "--seed", str(seed)))


def main() -> int:
    options = repeated.options(__doc__)
    build = pathlib.Path(os.environ.get("LOCKSTEP_BUILD_DIR", "build"))
    program = str((build / "bin" / "lockstep").resolve())
    todo = [piece for piece in pieces() if options.only in piece.name]
    counted = repeated.resume(todo, build / "soak-suite.json", options,
                              lambda piece: judge(run_suite(program, *piece.arguments)))
    totals = {key: sum(len(piece[key]) for piece in counted)
              for key in ("false_alarms", "missed", "undecided", "judged_otherwise")}
    alike = sum(not piece["judged_otherwise"] for piece in counted)
    print(f"false alarms {totals['false_alarms']}, mutants missed {totals['missed']}, undecided {totals['undecided']} "
          f"in {len(counted)} of {len(todo)} pieces; check said the same of {alike} of {len(counted)} runs")
    return 1 if totals["false_alarms"] or totals["missed"] or totals["judged_otherwise"] else 0


if __name__ == "__main__":
    sys.exit(main())
