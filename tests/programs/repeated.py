"""Programs of fixtures/programs again and again, in pieces: what is done is kept in a file, and a call goes on there."""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import time

import judged
from judged import table


@dataclasses.dataclass(frozen=True)
class Piece:
    row: table.Row
    world: int
    number: int
    loaded: bool = False  # while every core is busy with something else

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


def run(pieces: list[Piece], state: pathlib.Path, options: argparse.Namespace) -> bool:
    """Those of them that are not done, until options.minutes have passed. True: all that was done is right."""
    done = {} if options.again or not state.exists() else json.loads(state.read_text())
    begun = time.monotonic()
    for piece in pieces:
        if piece.name in done:
            continue
        if time.monotonic() - begun > options.minutes * 60:
            break
        with load(os.cpu_count() if piece.loaded else 0):
            result = judged.run(piece.row, piece.world, state.with_suffix("") / piece.name.replace(" ", "_").replace("/", "_"))
        done[piece.name] = {"false_alarm": result.false_alarm, "wrong_culprit": result.wrong_culprit, "other": result.other}
        state.write_text(json.dumps(done))
        print(f"{sum(p.name in done for p in pieces)} of {len(pieces)} done  {piece.name}: "
              f"{result.problems() or 'as it should be'}", flush=True)
    counted = [done[p.name] for p in pieces if p.name in done]
    totals = {key: sum(bool(one[key]) for one in counted) for key in ("false_alarm", "wrong_culprit", "other")}
    print(f"{len(counted)} of {len(pieces)} runs: false alarms {totals['false_alarm']}, "
          f"wrong culprits {totals['wrong_culprit']}; otherwise not as in the table {totals['other']}")
    return not any(totals.values())
