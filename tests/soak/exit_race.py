#!/usr/bin/env python3
"""PyTorch's own exit race with and without lockstep: it must be no more frequent with it.

A program that leaves without destroy_process_group right after Gloo work aborts in some runs, without us: a worker
thread of Gloo drops a tensor when Python is gone. With --kept the program is one that does call it, under torchrun, and
whose group a module keeps that was imported after it was made. 100 runs under lockstep and 100 by hand, one after the
other in turns; Fisher's exact test must not tell them apart (p > 0.01), and each abort under lockstep must be named as
what it is. Resumable: what is done is kept in a file, and a call goes on where the last one stopped. Prints `N of M
done`.
"""

import argparse
import json
import math
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

RUNS, P_MIN, RANKS, RANKS_KEPT = 100, 0.01, 2, 3

PROGRAM = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(6, 2))
for _ in range(5):
    model(torch.randn(8, 6)).pow(2).mean().backward()
total = torch.ones(4)
for work in [dist.all_reduce(total, async_op=True) for _ in range(10)]:
    work.wait()
dist.all_gather([torch.zeros(4) for _ in range(dist.get_world_size())], total)
dist.all_reduce(torch.ones(4))
"""
KEPT = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
import torch.distributed.nn
total = torch.ones(4)
for work in [dist.all_reduce(total, async_op=True) for _ in range(10)]:
    work.wait()
dist.all_gather([torch.zeros(4) for _ in range(dist.get_world_size())], total)
dist.all_reduce(torch.ones(4))
dist.destroy_process_group()
"""
NAMED = "ended by SIGABRT in Gloo's teardown: its process group outlived Python"


def by_hand(program: list) -> dict:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = str(listening.getsockname()[1])
    variables = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = [subprocess.Popen(program, env={**os.environ, **variables, "RANK": str(rank)}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for rank in range(RANKS)]
    return {"ends": [rank.wait() for rank in ranks]}


def by_torchrun(command: list) -> dict:
    """It ends the other ranks because of the first that aborts, and tells that one's signal."""
    said = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    return {"ends": [-signal.SIGABRT if b"(SIGABRT)" in said.stderr else said.returncode]}


def under_lockstep(command: list, run: pathlib.Path) -> dict:
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    report = json.loads((run / "report.json").read_text())
    statuses = [rank["status"] for rank in report["ranks"]]
    return {"ends": [status["exited"] if "exited" in status else -status["signaled"] for status in statuses],
            "said": [finding["headline"] for finding in report["findings"]]}


def aborted(run: dict) -> list:
    """The ranks that did."""
    return [rank for rank, end in enumerate(run["ends"]) if end == -signal.SIGABRT]


def is_explained(run: dict) -> bool:
    """The finding is there where a rank aborted, names all that did, and is nowhere else."""
    ranks = aborted(run)
    who = f"rank {ranks[0]} was" if len(ranks) == 1 else f"ranks {','.join(map(str, ranks))} were"
    return run["said"] == ([f"{who} {NAMED}"] if ranks else [])


def one_run(lockstep: list, kept: bool, python: str, folder: pathlib.Path) -> dict:
    """`lockstep`: the start of its command line; empty to run by hand."""
    program, run = folder / "leaves.py", folder / "run"
    program.write_text(KEPT if kept else PROGRAM)
    command = [python, "-B", str(program)]
    torchrun = [python, "-m", "torch.distributed.run", f"--nproc-per-node={RANKS_KEPT}", str(program)]
    if not lockstep:
        return by_torchrun(torchrun) if kept else by_hand(command)
    command = torchrun if kept else ["-n", str(RANKS), "--", *command]
    return under_lockstep([*lockstep, "--run-dir", str(run), *(["--"] if kept else []), *command], run)


def fisher(a: int, of_a: int, b: int, of_b: int) -> float:
    """Two-sided: the probability of a table that is no more likely than this one, all margins given."""
    def likelihood(x: int) -> float:
        return math.comb(of_a, x) * math.comb(of_b, a + b - x) / math.comb(of_a + of_b, a + b)

    seen = likelihood(a)
    possible = range(max(0, a + b - of_b), min(of_a, a + b) + 1)
    return min(1.0, sum(p for p in map(likelihood, possible) if p <= seen * (1 + 1e-9)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60, help="stop after the run in which this is reached")
    parser.add_argument("--kept", action="store_true", help="the program whose group a module keeps")
    parser.add_argument("--again", action="store_true", help="forget what is done")
    options = parser.parse_args()
    build = pathlib.Path(os.environ.get("LOCKSTEP_BUILD_DIR", "build")).resolve()
    python = os.environ.get("LOCKSTEP_PYTHON", str(pathlib.Path(__file__).resolve().parents[2] / ".venv/bin/python"))
    lockstep = [str(build / "bin" / "lockstep"), "run"]
    state = build / f"soak-exit-race{'-kept' if options.kept else ''}.json"
    done = {"with": [], "without": []} if options.again or not state.exists() else json.loads(state.read_text())
    begun = time.monotonic()
    while min(map(len, done.values())) < RUNS and time.monotonic() - begun < options.minutes * 60:
        with tempfile.TemporaryDirectory(prefix="lockstep-soak-") as scratch:
            which = "with" if len(done["with"]) <= len(done["without"]) else "without"
            done[which].append(one_run(lockstep if which == "with" else [], options.kept, python, pathlib.Path(scratch)))
        state.write_text(json.dumps(done))
        print(f"{sum(map(len, done.values()))} of {2 * RUNS} done", flush=True)
    counts = {key: sum(map(bool, map(aborted, runs))) for key, runs in done.items()}
    p = fisher(counts["with"], len(done["with"]), counts["without"], len(done["without"]))
    unexplained = [run for run in done["with"] if not is_explained(run)]
    print(f"aborted: {counts['with']} of {len(done['with'])} with lockstep, {counts['without']} of {len(done['without'])} "
          f"without; Fisher's p {p:.3f}; not named as it should be: {len(unexplained)}")
    for run in unexplained:
        print(run)
    return 1 if p <= P_MIN or unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
