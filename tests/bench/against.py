#!/usr/bin/env python3
"""Two builds of lockstep beside each other: what each costs a program, and how soon it answers.

usage: against.py BEFORE NOW [--python PYTHON] [--rounds N] [--only PART]

Each round runs both (and, where the cost counts, the program alone) in turn. A row has the medians, the ratio of now to
before with its 95 % interval over the rounds, and the unit. A run that lost a record makes its row void: it is told.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

from cost import PROGRAMS, VARIABLES, PLAIN, interval

HANG = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
for _ in range(5):
    dist.all_reduce(torch.ones(4))
open(f"{os.environ['LAST_CALLS']}/{dist.get_rank()}", "w").write(str(time.monotonic()))
(dist.barrier if dist.get_rank() == 1 else dist.all_reduce)(*[] if dist.get_rank() == 1 else [torch.ones(4)])
"""
TRAIN = """
import os, time, torch, torch.distributed as dist, torch.multiprocessing as mp
def rank(index):
    dist.init_process_group("gloo", "tcp://127.0.0.1:29533", rank=index, world_size=24)
    until = time.monotonic() + 20
    over = torch.zeros(1)
    while not over.item():
        time.sleep(0.045)
        over.fill_(float(index == 0 and time.monotonic() > until))
        dist.all_reduce(over)
    dist.destroy_process_group()
if __name__ == "__main__":
    torch.set_num_threads(1)
    mp.start_processes(rank, nprocs=24, start_method="fork")
"""


class Void(Exception):
    pass


def whole(run: pathlib.Path) -> None:
    lost = [each for each in json.loads((run / "report.json").read_text())["unseen"] if re.search("lost|dropped", each)]
    if lost:
        raise Void("; ".join(lost))


class Bench:
    def __init__(self, python: str, folder: pathlib.Path) -> None:
        self.python, self.folder = python, folder
        (folder / "hang.py").write_text(HANG)
        (folder / "train.py").write_text(TRAIN)

    def run(self, program: str, options: list[str], command: list[str], **environment: str) -> subprocess.CompletedProcess:
        """Of the command alone where `program` is empty."""
        run = self.folder / f"run{time.monotonic_ns()}"
        words = [program, "run", "--run-dir", str(run), *options, "--", *command] if program else command
        done = subprocess.run(words, capture_output=True, text=True, cwd=self.folder, stdin=subprocess.DEVNULL,
                              env={**os.environ, **VARIABLES[PLAIN], **environment}, timeout=600, check=False)
        if program:
            whole(run)
        return done

    def call(self, program: str, depth: int) -> float:
        """Nanoseconds of one all-reduce on a backend that does nothing."""
        command = [self.python, "-B", str(PROGRAMS / "collective.py"), str(depth)]
        return float(self.run(program, ["-n", "1"], command).stdout.split()[-1])

    def answer(self, program: str, ranks: int) -> float:
        """Milliseconds from the last call of a rank to the finding on the terminal."""
        with tempfile.TemporaryDirectory(dir=self.folder) as calls:
            process = subprocess.Popen(
                [program, "run", "-n", str(ranks), "--run-dir", f"{calls}/run", "--", self.python, str(self.folder / "hang.py")],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
                env={**os.environ, "LAST_CALLS": calls, "OMP_NUM_THREADS": "1"})
            printed = next(time.monotonic() for line in process.stdout if line.startswith("error[LS"))
            process.communicate()
            whole(pathlib.Path(calls) / "run")
            return 1e3 * (printed - max(float((pathlib.Path(calls) / str(rank)).read_text()) for rank in range(ranks)))

    def start(self, program: str, command: list[str]) -> float:
        begun = time.monotonic()
        self.run(program, [], command)
        return 1e3 * (time.monotonic() - begun)

    def supervisor(self, program: str) -> float:
        """Percent of a core that is not its job's."""
        begun = time.monotonic()
        done = self.run(program, [], ["sh", "-c", f"{self.python} {self.folder}/train.py; cat /proc/$PPID/stat"])
        words = done.stdout.rsplit(")", 1)[1].split()
        took = time.monotonic() - begun
        return 100 * (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK") / took

    def suite(self, program: str) -> float:
        begun = time.monotonic()
        subprocess.run([program, "suite", "--run-dir", str(self.folder / f"suite{time.monotonic_ns()}")], capture_output=True,
                       stdin=subprocess.DEVNULL, check=True)
        return time.monotonic() - begun


def rows(bench: Bench) -> list[tuple]:
    """Name, unit, what is measured, whether the program alone is subtracted, rounds that it is worth."""
    return [
        ("call at depth 2", "ns", lambda p: bench.call(p, 0), True, 1),
        ("call at depth 10", "ns", lambda p: bench.call(p, 8), True, 1),
        ("call at depth 30", "ns", lambda p: bench.call(p, 28), True, 1),
        ("answer, 2 ranks", "ms", lambda p: bench.answer(p, 2), False, 1),
        ("answer, 8 ranks", "ms", lambda p: bench.answer(p, 8), False, 0.5),
        ("run of true", "ms", lambda p: bench.start(p, ["true"]), True, 2),
        ("run of import torch", "ms", lambda p: bench.start(p, [bench.python, "-c", "import torch"]), True, 1),
        ("supervisor of 24 ranks", "% core", bench.supervisor, False, 0.2),
        ("suite", "s", bench.suite, False, 0.2),
    ]


def measure(row: tuple, programs: list[str], rounds: int) -> str:
    name, unit, of, with_plain, worth = row
    took = {program: [] for program in programs}
    for number in range(max(3, round(rounds * worth))):
        plain = of("") if with_plain else 0.0
        for program in programs if number % 2 == 0 else programs[::-1]:
            took[program].append(of(program) - plain)
    before, now = (took[program] for program in programs)
    ratios = [b / a for a, b in zip(before, now, strict=True)]
    low, high = interval(ratios)
    return (f"{name:<24} {statistics.median(before):9.1f} {statistics.median(now):9.1f} {unit:<7} "
            f"x {statistics.median(ratios):.3f} ({low:.3f} to {high:.3f}), now {min(now):.1f} to {max(now):.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("now")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    programs = [str(pathlib.Path(each).resolve()) for each in (options.before, options.now)]
    for program in programs:
        subprocess.run([program, "tap", "build", "--python", options.python], check=True, stdout=sys.stderr)
    print(f"{'':<24} {'before':>9} {'now':>9}")
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as folder:
        for row in rows(Bench(options.python, pathlib.Path(folder))):
            if options.only not in row[0]:
                continue
            try:
                print(measure(row, programs, options.rounds), flush=True)
            except Void as why:
                print(f"{row[0]:<24} void: {why}", flush=True)


if __name__ == "__main__":
    main()
