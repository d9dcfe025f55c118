"""What is said of programs that end with status 0 and wrong numbers: the second table of docs/comparison.md.

All bad rows of fixtures/programs/table_watched.py, on two ranks over Gloo:
 - PyTorch as it is, with TORCH_DISTRIBUTED_DEBUG=DETAIL, with TORCH_NCCL_NAN_CHECK=1 (ProcessGroupNCCL reads it, and
   Gloo does not) and with TORCH_DIST_NAN_CHECK=1 (for any backend, in PyTorch 2.15): the last exception of each rank, or
   how it ended. Where the healthy twin ends in the same way with the variable, the cell says so.
 - traincheck 0.2.0, which learns what holds in a healthy run. The way of its guide: traincheck-collect of the healthy
   twin, traincheck-infer, traincheck-collect --invariants of the bad program (the default sampling: ten steps, then every
   tenth), traincheck-check. A shell script starts the two ranks, and the variable of the model is tracked where there
   is one. Some of what it learns fails in any other run: the twin is collected and checked once more, and what fails in
   that one, too, is only counted. It names PyTorch up to 2.5 as supported. Where a PyTorch for CUDA finds no GPU it raises
   while it goes through torch (RuntimeError: Found no NVIDIA driver, at torch.backends.cuda.cufft_plan_cache), so the
   ranks start without that object. It is asked where --traincheck names a Python that has it.
 - lockstep run --watch: code, culprits and headline of the finding.
"""

import dataclasses
import json
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile

from comparison_ranks import WORLD, ends_of, last_exception, seen_by_lockstep, seen_with, short
from table_watched import WATCHED

VARIABLES = {
    "plain": {},
    "detail": {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"},
    "nccl_nan_check": {"TORCH_NCCL_NAN_CHECK": "1"},
    "dist_nan_check": {"TORCH_DIST_NAN_CHECK": "1"},
}
HEADING = "## Wrong numbers"
TOOLS = (*VARIABLES, "traincheck", "lockstep")
TITLES = ("PyTorch as it is", *(f"`{name}={value}`" for added in VARIABLES.values() for name, value in added.items()),
          "traincheck 0.2.0", "lockstep run --watch")

# What each is compared with: the nearest healthy kind of the same program, with the same optimizer where it has one.
TWINS = {
    "replicas.py": "skipped_step", "replicas.py loaded": "good", "replicas.py by_hand_loaded": "by_hand",
    "replicas.py never_sent": "synchronised_later", "replicas.py buffer_left_out": "buffer_of_its_own",
    "replicas.py own_statistics": "buffer_of_its_own", "replicas.py statistics_of_one": "buffer_of_its_own",
    "replicas.py biases_summed": "divided_before", "replicas.py sum_by_choice": "divided_before",
    "in_flight.py": "waited", "in_flight.py handed_on": "sent_back", "in_flight.py stepped_with": "sent_back",
    "shards.py": "good",
}
MODELS = {"replicas.py": ("model",), "shards.py": ("module",), "in_flight.py": ()}  # The variables that hold them.

WITHOUT_PLANS = """
import os
if "RANK" in os.environ:
    import torch
    torch.backends.cuda.cufft_plan_cache = None
"""
START = """
export MASTER_ADDR=127.0.0.1 MASTER_PORT={port} WORLD_SIZE={world}
for rank in {ranks}; do RANK=$rank LOCAL_RANK=$rank {python} -u {program} {kind} & started="$started $!"; done
for pid in $started; do wait $pid || exit $?; done
"""


class NotChecked(Exception):
    pass


def chosen(parts: list) -> list:
    return [row for row in WATCHED if row.code and WORLD in row.worlds and (not parts or any(p in row.name for p in parts))]


def twin_of(row) -> str:
    return TWINS.get(row.name) or TWINS[row.program]


@dataclasses.dataclass
class TrainCheck:
    python: str  # Its commands lie beside this one.
    folder: pathlib.Path  # What was learnt is kept there.
    limit: float  # seconds for each command

    def seen(self, row, programs: pathlib.Path) -> str:
        try:
            known = self.learnt(row.program, twin_of(row), programs)
            with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
                self.collect(row.program, row.arguments, programs, pathlib.Path(scratch), "bad", known / "invariants.json")
                failed = self.check(pathlib.Path(scratch), "bad", known / "invariants.json")
        except NotChecked as error:
            return str(error)
        count = len((known / "invariants.json").read_text().splitlines())
        healthy = set(json.loads((known / "healthy.json").read_text()))
        said = f"{len(failed)} of {count} invariants fail, {len(failed & healthy)} of them in another healthy run, too"
        alone = sorted(failed - healthy, key=lambda name: (not name.startswith("Parameter."), name))  # Of values first.
        return f"{said}; the others: {short('; '.join(alone))}" if alone else said

    def learnt(self, program: str, twin: str, programs: pathlib.Path) -> pathlib.Path:
        """The folder with the invariants of the healthy twin, and with those that another run of it breaks."""
        known = self.folder / f"{program}-{twin}"
        if (known / "error.txt").exists():
            raise NotChecked((known / "error.txt").read_text())
        known.mkdir(parents=True, exist_ok=True)
        invariants = known / "invariants.json"
        try:
            if not invariants.exists():
                self.collect(program, twin, programs, known, "reference")
                self.ask(["traincheck-infer", "-f", "reference", "-o", str(invariants)], known, f"of `{twin}`")
            if not (known / "healthy.json").exists():
                self.collect(program, twin, programs, known, "healthy", invariants)
                (known / "healthy.json").write_text(json.dumps(sorted(self.check(known, "healthy", invariants))))
        except NotChecked as error:
            (known / "error.txt").write_text(str(error))
            raise
        return known

    def collect(self, program: str, kind: str, programs: pathlib.Path, folder: pathlib.Path, to: str,
                invariants: pathlib.Path | None = None) -> None:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            port = listening.getsockname()[1]
        shutil.rmtree(folder / to, ignore_errors=True)
        shutil.copy(programs / program, folder)  # It writes beside the program.
        (folder / "sitecustomize.py").write_text(WITHOUT_PLANS)
        (folder / "start.sh").write_text(START.format(port=port, world=WORLD, ranks=" ".join(map(str, range(WORLD))),
                                                      python=self.python, program=program, kind=kind))
        command = ["traincheck-collect", "--pyscript", program, "--shscript", "start.sh", "--output-dir", to]
        command += ["--models-to-track", *MODELS[program]] if MODELS[program] else []
        self.ask([*command, *(["--invariants", str(invariants)] if invariants else [])], folder, f"of `{kind}`")

    def check(self, folder: pathlib.Path, traces: str, invariants: pathlib.Path) -> set:
        """What fails in these traces, in its words."""
        self.ask(["traincheck-check", "-f", traces, "-i", str(invariants), "-o", "checked", "--no-html-report"], folder,
                 "of the traces")
        summary = json.loads((folder / "checked" / traces / "violations_summary.json").read_text())
        return {violation["display_name"] for violation in summary["violations"]}

    def ask(self, command: list, folder: pathlib.Path, what: str) -> None:
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen([str(pathlib.Path(self.python).with_name(command[0])), *command[1:]], cwd=folder,
                                       stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
            (end,) = ends_of([process], self.limit)
            log.seek(0)
            said = last_exception(re.sub(r"\x1b\[\d*m", "", log.read().decode(errors="replace")))
        if end is None:
            raise NotChecked(f"{command[0]} {what}: time-out after {self.limit:.0f} s")
        if end != 0:
            raise NotChecked(f"{command[0]} {what}: exit status {end}{': ' + said if said else ''}")


def ask(row, tool: str, options, programs: pathlib.Path, state: dict) -> str:
    """What `tool` says of the row; what it says of the twin is kept in `state`."""
    command = [options.python, "-B", str(programs / row.program)]
    if tool == "lockstep":
        return seen_by_lockstep(options.lockstep, row.options, [*command, row.arguments], tells_severity=True)
    if tool == "traincheck":
        folder = options.state.resolve().parent / "traincheck"
        return TrainCheck(options.traincheck, folder, options.traincheck_limit).seen(row, programs)
    twin = f"{row.program} {twin_of(row)}"
    if tool not in state.setdefault(twin, {}):
        state[twin][tool] = seen_with(VARIABLES[tool], [*command, twin_of(row)], options.limit)
    said = seen_with(VARIABLES[tool], [*command, row.arguments], options.limit)
    ended_well = "; ".join(f"rank {rank}: exit status 0" for rank in range(WORLD))
    return f"{said}; `{twin_of(row)}`, which is healthy: the same" if said == state[twin][tool] != ended_well else said


def page(torch: str) -> list:
    return [
        "",
        f"Programs that PyTorch lets end with status 0, two ranks over Gloo, torch {torch}: all of the table of watched",
        "programs that are not healthy. `tests/bench/comparison_watched.py` says how each tool was asked, and which healthy",
        "kind of the program is a program's twin. traincheck learns from a run of the twin; some of what it learns fails in",
        "the next run of the twin, and of that only the number is told. Its guide says that it was tested with PyTorch 1.7 to",
        "2.5.",
        "",
        "| program | expected | " + " | ".join(TITLES) + " |",
        "|---" * (len(TITLES) + 2) + "|",
    ]
