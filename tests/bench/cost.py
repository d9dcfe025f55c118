#!/usr/bin/env python3
"""What `lockstep run` costs a program: interleaved pairs with and without it.

usage: cost.py LOCKSTEP [--python PYTHON] [--pairs N]

Of each program the median of both ways, the median of the differences, and the median of the ratios with its 95 %
interval (order statistics). The programs are in cost/; each prints one number.
"""

import argparse
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

PROGRAMS = pathlib.Path(__file__).parent / "cost"


def measure(command: list[str]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        result = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=600)
    if result.returncode not in (0, 2):
        sys.exit(f"{' '.join(command)} ended with {result.returncode}:\n{result.stderr}")
    return float(result.stdout.split()[-1])


def interval(values: list[float]) -> tuple[float, float]:
    """Of the median, 95 %."""
    ordered, reach = sorted(values), 0.98 * math.sqrt(len(values))
    low = max(0, math.floor(len(values) / 2 - reach))
    high = min(len(values) - 1, math.ceil(len(values) / 2 + reach))
    return ordered[low], ordered[high]


def compare(name: str, unit: str, plain: list[str], seen: list[str], pairs: int) -> None:
    without, with_ = [], []
    for i in range(pairs):
        for values, command in [(without, plain), (with_, seen)][:: 1 if i % 2 == 0 else -1]:
            values.append(measure(command))
    ratios = [b / a for a, b in zip(without, with_, strict=True)]
    low, high = interval(ratios)
    difference = statistics.median(b - a for a, b in zip(without, with_, strict=True))
    print(
        f"{name:<12} {statistics.median(without):10.1f} {unit} without, {statistics.median(with_):10.1f} with: "
        f"{difference:+.1f} {unit}, x {statistics.median(ratios):.4f} (95 %: {low:.4f} to {high:.4f}; {pairs} pairs)",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("lockstep")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--pairs", type=int, default=30)
    options = parser.parse_args()
    subprocess.run([options.lockstep, "tap", "build", "--python", options.python], check=True, stdout=sys.stderr)
    for name, unit, ranks in (("collective", "ns", ["-n", "1"]), ("ddp_step", "us", [])):
        plain = [options.python, "-B", str(PROGRAMS / f"{name}.py")]
        compare(name, unit, plain, [options.lockstep, "run", *ranks, "--", *plain], options.pairs)


if __name__ == "__main__":
    main()
