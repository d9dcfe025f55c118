#!/usr/bin/env python3
"""How long after the end of its last rank `lockstep run` ends itself, where the job left nothing behind: medians of 20.

  ending.py LOCKSTEP [--python PYTHON]    with a Python that has torch, ranks that use it, too
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

TIMES = 20
LIMIT_MS = 100.0
TRAIN = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for _ in range(200):
    dist.all_reduce(torch.ones(4))
dist.destroy_process_group()
"""


def delay_ms(program: str, ranks: int, command: list[str]) -> float:
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as scratch:
        run = pathlib.Path(scratch) / "run"
        subprocess.run([program, "run", "-n", str(ranks), "--run-dir", str(run), "--", *command], capture_output=True,
                       stdin=subprocess.DEVNULL, check=True)
        ended = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        journal = map(json.loads, (run / "history" / "lockstep.jsonl").read_text().splitlines())
        return (ended - max(event["t"] for event in journal if event["e"] == "process_end")) / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--python", default="")
    options = parser.parse_args()
    rows = [(ranks, ["sh", "-c", "sleep 0.1"], "without torch") for ranks in (2, 8)]
    if options.python:
        rows.append((2, [options.python, "-c", TRAIN], "with torch"))
    too_late = False
    for ranks, command, what in rows:
        delays = [delay_ms(options.program, ranks, command) for _ in range(TIMES)]
        too_late |= statistics.median(delays) > LIMIT_MS
        print(f"lockstep run -n {ranks}, {what}: ends {statistics.median(delays):.0f} ms after its last rank "
              f"({min(delays):.0f} to {max(delays):.0f}); at most {LIMIT_MS:.0f}", flush=True)
    return 1 if too_late else 0


if __name__ == "__main__":
    sys.exit(main())
