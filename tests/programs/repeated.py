"""Programs of fixtures/programs again and again, in pieces: what is done is kept in a file, and a call goes on there."""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import judged
from judged import table


@dataclasses.dataclass(frozen=True)
class Piece:
    row: table.Row
    world: int
    number: int

    @property
    def loaded(self) -> bool:
        """While every core is busy with something else: half of the runs of what is about the end of processes."""
        return self.row in table.HOME and self.world == 2 and self.number >= 5

    @property
    def name(self) -> str:
        return f"w{self.world} {self.row.name} #{self.number}{' loaded' if self.loaded else ''}"


@contextlib.contextmanager
def load(cores: int):
    """Busy processes; they end with us."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(cores)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def options(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--minutes", type=float, default=60, help="stop after the piece in which this is reached")
    parser.add_argument("--again", action="store_true", help="forget what is done")
    parser.add_argument("--only", default="", help="only pieces whose name contains this: w3, loader.py, draw, ...")
    return parser.parse_args()


def resume(pieces: list, state: pathlib.Path, options: argparse.Namespace, work, words=str, jobs=1) -> list[dict]:
    """What work(piece) made of those that are done; does the others until options.minutes have passed, so many at a
    time: first those that want no load."""
    done = json.loads(state.read_text()) if state.exists() else {}
    if options.again:
        for piece in pieces:
            done.pop(piece.name, None)
    begun, one_at_a_time = time.monotonic(), threading.Lock()
    asked_to_end = threading.Event()

    def end(number: int, _frame) -> None:
        """After what runs, so that nothing is left behind; it was asked too, perhaps, and tells nothing then."""
        asked_to_end.set()
        sys.exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)

    def run_one(piece) -> None:
        if time.monotonic() - begun > options.minutes * 60:
            return
        result = work(piece)
        if asked_to_end.is_set():
            return
        with one_at_a_time:
            done[piece.name] = result
            state.write_text(json.dumps(done))
            print(f"{sum(p.name in done for p in pieces)} of {len(pieces)} done  {piece.name}: {words(result)}",
                  flush=True)

    for loaded in (False, True):
        left = [piece for piece in pieces if piece.loaded == loaded and piece.name not in done]
        with load(os.cpu_count() if loaded and left else 0), concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            list(pool.map(run_one, left))
    return [done[p.name] for p in pieces if p.name in done]


def run(pieces: list[Piece], options: argparse.Namespace) -> bool:
    """Those of them that are not done, until options.minutes have passed. True: all that was done is right."""
    state, kinds = judged.BUILD / "soak-programs.json", ("false_alarm", "wrong_culprit", "other")

    def judge(piece: Piece) -> dict:
        keep = state.with_suffix("") / piece.name.replace(" ", "_").replace("/", "_")
        result = judged.run(piece.row, piece.world, keep)
        return {kind: getattr(result, kind) for kind in kinds}

    counted = resume(pieces, state, options, judge,
                     lambda result: judged.Judged(**result).problems() or "as it should be",
                     2 * (os.cpu_count() or 1))  # Many of them wait for most of their time.
    totals = {kind: sum(bool(one[kind]) for one in counted) for kind in kinds}
    print(f"{len(counted)} of {len(pieces)} runs: false alarms {totals['false_alarm']}, "
          f"wrong culprits {totals['wrong_culprit']}; otherwise not as in the table {totals['other']}")
    return not any(totals.values())
