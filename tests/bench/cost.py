#!/usr/bin/env python3
"""What `lockstep run` costs a program, beside what PyTorch's own Flight Recorder and DETAIL mode cost it.

usage: cost.py LOCKSTEP [--python PYTHON] [--rounds N] [--only PROGRAM]

A round runs a program once in each way, in an order that changes from round to round. Of each way the median of the
differences to, and of the ratios with, the plain run of the same round, each with its 95 % interval (order
statistics): the upper end is what counts. A way in which the program ends badly is told and left out. The programs
are in cost/; each prints one number.
"""

import argparse
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

PROGRAMS = pathlib.Path(__file__).parent / "cost"
PLAIN, SEEN, RECORDED, DETAIL = "plain", "lockstep", "Flight Recorder", "DETAIL"
VARIABLES = {
    PLAIN: {"TORCH_FR_BUFFER_SIZE": "0"},
    SEEN: {"TORCH_FR_BUFFER_SIZE": "0"},
    RECORDED: {"TORCH_FR_BUFFER_SIZE": "2000"},
    DETAIL: {"TORCH_FR_BUFFER_SIZE": "0", "TORCH_DISTRIBUTED_DEBUG": "DETAIL"},
}
# Name, unit, ranks that lockstep starts, ways. The fake backend knows neither of PyTorch's tools.
MEASURED = [
    ("collective", "ns", ("-n", "1"), (SEEN,)),
    ("gloo_collective", "us", (), (SEEN, RECORDED, DETAIL)),
    ("ddp_step", "us", (), (SEEN, RECORDED, DETAIL)),
]


class EndedBadly(Exception):
    pass


def measure(lockstep: str, python: str, name: str, ranks: tuple, way: str) -> float:
    command = [python, "-B", str(PROGRAMS / f"{name}.py")]
    if way == SEEN:
        command = [lockstep, "run", *ranks, "--", *command]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=600, stdin=subprocess.DEVNULL,
                              env={**os.environ, **VARIABLES[way]})
    if done.returncode != 0:
        signals = re.findall(r"signal (SIG\w+)", done.stderr)
        end = f"ended by {signals[-1]}" if signals else f"exit status {done.returncode}: {done.stderr[-400:]}"
        raise EndedBadly("; ".join((end, *re.findall(r"error\[LS\d+\]: .*", done.stderr))))
    return float(done.stdout.split()[-1])


def interval(values: list[float]) -> tuple[float, float]:
    """Of the median, 95 %."""
    ordered, reach = sorted(values), 0.98 * math.sqrt(len(values))
    low = max(0, math.floor(len(values) / 2 - reach))
    high = min(len(values) - 1, math.ceil(len(values) / 2 + reach))
    return ordered[low], ordered[high]


def compare(lockstep: str, python: str, program: tuple, rounds: int) -> None:
    name, unit, ranks, ways = program
    took, bad = {way: [] for way in (PLAIN, *ways)}, {}
    for i in range(rounds):
        order = [PLAIN, *ways]
        for way in (order[i % len(order):] + order[: i % len(order)])[:: 1 if i % 2 == 0 else -1]:
            if way in bad:
                continue
            try:
                took[way].append(measure(lockstep, python, name, ranks, way))
            except EndedBadly as end:
                if way in (PLAIN, SEEN):
                    sys.exit(f"{name}, {way}: {end}")
                bad[way] = end
    print(f"{name}: {statistics.median(took[PLAIN]):.1f} {unit} as it is; {rounds} rounds")
    for way in ways:
        if way in bad:
            print(f"  {way:<16} {bad[way]}")
            continue
        pairs = list(zip(took[PLAIN], took[way], strict=True))
        differences, ratios = [b - a for a, b in pairs], [b / a for a, b in pairs]
        more, less = interval(differences), interval(ratios)
        print(f"  {way:<16} {statistics.median(differences):+.1f} {unit} (95 %: {more[0]:+.1f} to {more[1]:+.1f}), "
              f"x {statistics.median(ratios):.4f} (95 %: {less[0]:.4f} to {less[1]:.4f})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--only", default="", help="only the program of this name")
    options = parser.parse_args()
    lockstep = str(pathlib.Path(options.lockstep).resolve())
    subprocess.run([lockstep, "tap", "build", "--python", options.python], check=True, stdout=sys.stderr)
    for program in MEASURED:
        if options.only in ("", program[0]):
            compare(lockstep, options.python, program, options.rounds)


if __name__ == "__main__":
    main()
