#!/usr/bin/env python3
"""Programs on public libraries, as they are, under lockstep and watched: run.py LOCKSTEP [NAME ...] [--write] [--keep DIR]

Each library is installed from PyPI, with all that it needs pinned (requirements/LIBRARY.txt), into a virtual
environment of its own in the cache; the torch there is that of the interpreter this runs in. Status and output must be
the same each time, and lockstep must find nothing, with --watch and without. NAME is a part of a program's name.

docs/third_party.md has the table of what was seen: it is compared with what is seen now, or written with --write.
Status 1 where a row is not right or not as in the table.
"""

import argparse
import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid

HERE = pathlib.Path(__file__).resolve().parent
TABLE = HERE.parents[1] / "docs" / "third_party.md"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "lockstep"
MARK = "LOCKSTEP_THIRD_PARTY"  # In the environment of all that a run starts: what outlives it is found by that.
TWO_RANKS = ("python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


@dataclasses.dataclass(frozen=True)
class Program:
    name: str
    library: str  # requirements/LIBRARY.txt; nothing but torch where it is empty
    command: tuple
    environment: dict = dataclasses.field(default_factory=dict)
    status: int = 0
    limit_s: int = 150


def accelerate(script: str, *launcher: str, **more: object) -> Program:
    command = (*launcher, "-m", f"accelerate.test_utils.scripts.{script}")
    return Program(f"accelerate {script}", "accelerate", command, {"ACCELERATE_USE_CPU": "true"}, **more)


PROGRAMS = (
    accelerate("test_script", *TWO_RANKS, limit_s=240),
    accelerate("test_sync", *TWO_RANKS),
    accelerate("test_ops", *TWO_RANKS),
    Program("accelerate test_notebook", "accelerate", ("python", "accelerate_test_notebook.py"),
            {"ACCELERATE_USE_CPU": "true", "ACCELERATE_NUM_PROCESSES": "2"}),
    accelerate("test_distributed_data_loop", *TWO_RANKS),
    Program("accelerate loops", "accelerate", (*TWO_RANKS, "accelerate_loops.py"), {"ACCELERATE_USE_CPU": "true"}),
    Program("accelerate notebook_launcher", "accelerate", ("python", "accelerate_notebook.py"),
            {"ACCELERATE_USE_CPU": "true"}),
    Program("Lightning ddp_spawn", "lightning", ("python", "lightning_fit.py", "ddp_spawn")),
    Program("Lightning ddp_fork", "lightning", ("python", "lightning_fit.py", "ddp_fork")),
    Program("Lightning ddp", "lightning", ("python", "lightning_fit.py", "ddp")),
    Program("Lightning loops", "lightning", ("python", "lightning_loops.py"), limit_s=240),
    Program("Ray Train", "ray", ("python", "ray_train.py"), limit_s=300),
    Program("torchft DDP", "torchft", ("sh", "torchft_ddp.sh")),
    Program("DeepSpeed ZeRO 0", "deepspeed", (*TWO_RANKS, "deepspeed_zero.py", "0"), {"DS_ACCELERATOR": "cpu"}, limit_s=300),
    Program("DeepSpeed ZeRO 2", "deepspeed", (*TWO_RANKS, "deepspeed_zero.py", "2"), {"DS_ACCELERATOR": "cpu"}, limit_s=300),
    Program("HF Trainer", "transformers", (*TWO_RANKS, "transformers_trainer.py")),
    Program("HF Trainer loops", "transformers", (*TWO_RANKS, "transformers_loops.py"), limit_s=240),
    Program("timm, torchvision and others", "libraries", (*TWO_RANKS, "libraries_loops.py"), limit_s=240),
    Program("MultiProcessTestCase, 10 healthy", "multiprocess", ("python", "torch_multiprocess.py", "Healthy"), limit_s=480),
    Program("MultiProcessTestCase, 3 skipped", "multiprocess", ("python", "torch_multiprocess.py", "Skipped"), limit_s=300),
)


class Failed(Exception):
    """The program cannot be installed; the text is pip's."""


def pinned(library: str) -> pathlib.Path:
    return HERE / "requirements" / f"{library}.txt"


def folder_of_torch() -> pathlib.Path:
    import torch

    return pathlib.Path(torch.__file__).resolve().parents[1]


@contextlib.contextmanager
def locked(path: pathlib.Path):
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def environment_of(library: str, torch: pathlib.Path) -> pathlib.Path:
    """A virtual environment with it; only its marker, written last, makes it complete."""
    folder = CACHE / f"third-party-{library}"
    wanted, marker = f"{torch}\n{pinned(library).read_text()}", folder / ".complete"
    CACHE.mkdir(parents=True, exist_ok=True)
    with locked(CACHE / f"third-party-{library}.lock"):
        if marker.exists() and marker.read_text() == wanted:
            return folder
        print(f"installing {library} into {folder}", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        site = next(folder.glob("lib/python*/site-packages"))
        (site / "torch.pth").write_text(f"{torch}\n")  # Seen, not installed again: it has 5.5 GB.
        pip = subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "-q", "--no-input", "--no-deps",
                              "--disable-pip-version-check", "-r", pinned(library)], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if pip.returncode:
            raise Failed(f"pip: {pip.stdout.strip()}")
        marker.write_text(wanted)
    return folder


# ---------------------------------------------------------------------------------------------- runs


@dataclasses.dataclass
class Seen:
    status: int | None  # None: ended by us, at its limit
    lines: list  # what it printed, of both streams
    left: list
    seconds: float
    report: dict | None = None


def marked(mark: str) -> dict:
    """Processes with that in their environment: pid and what they are."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}".encode() in (path / "environ").read_bytes():
                found[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:80]
    return found


def run(program: Program, folder: pathlib.Path, scratch: pathlib.Path, before: tuple = ()) -> Seen:
    """What the program says goes into files, so that nothing of lockstep's is among it."""
    scratch.mkdir()
    (scratch / "t").mkdir()
    out, mark = scratch / "output", uuid.uuid4().hex
    variables = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "TMPDIR": str(scratch / "t"),
                 "RAY_TMPDIR": str(scratch / "t"), "HF_HOME": str(scratch / "t"), "HF_HUB_OFFLINE": "1",
                 "TORCH_EXTENSIONS_DIR": str(folder / "extensions"),
                 "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", **program.environment, MARK: mark}
    variables.pop("VIRTUAL_ENV", None)
    with open(scratch / "said", "wb") as said:
        began = time.monotonic()
        process = subprocess.Popen((*before, "sh", "-c", 'exec >"$0" 2>"$0.err"; exec "$@"', out, *program.command),
                                   cwd=HERE / "programs", env=variables, stdin=subprocess.DEVNULL, stdout=said,
                                   stderr=said)
        status = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = process.wait(program.limit_s)
        seconds = time.monotonic() - began
    if status is not None:
        time.sleep(1)  # What is ending has time to.
    left = marked(mark)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if status is None:
        process.wait()
    lines = [line for file in (out, scratch / "output.err") if file.exists()
             for line in file.read_text(errors="replace").splitlines()]
    return Seen(status, lines, list(left.values()), seconds)


def shape(lines: list) -> set:
    """Without what differs from run to run: numbers, temporary names, progress, and whose line came first."""
    text = [re.sub(r"0x[0-9a-f]+|\b[0-9a-f]{8,}\b|\d+(\.\d+)?(e-?\d+)?", "N", line) for line in lines if "%|" not in line]
    return {re.sub(r"(/[\w.-]+)*/t(mp)?[/_][\w./-]*", "PATH", line).strip() for line in text if line.strip()}


def parted(lines: set, known: set) -> set:
    """A line that two ranks wrote into at once is the known lines that it is made of."""
    one = re.compile("|".join(re.escape(line) for line in sorted(known, key=len, reverse=True)) or r"(?!)")
    parts = {line: one.findall(line) for line in lines}
    return {part for line, found in parts.items()
            for part in (found if re.sub(r"\s", "", "".join(found)) == re.sub(r"\s", "", line) else [line])}


def difference(plain: list, under: list) -> str:
    """What all runs of one kind printed, and none of the other: what the rest depends on is chance."""
    before, now = [shape(one.lines) for one in plain], [shape(one.lines) for one in under]
    known = set.union(*before, *now)
    before, now = ([parted(one, known - one) for one in runs] for runs in (before, now))
    parts = [("gone", line) for line in sorted(set.intersection(*before) - set.union(*now))[:2]]
    parts += [("new", line) for line in sorted(set.intersection(*now) - set.union(*before))[:2]]
    return "; ".join(f"{what}: {line[:160]}" for what, line in parts)


def told(report: dict) -> str:
    """In a line: verdict, findings, checks that could not decide."""
    parts = [report["verdict"]]
    for finding in report["findings"]:
        who = f", ranks {','.join(map(str, finding['culprits']))}" if finding["culprits"] else ""
        parts.append(f"{finding['severity']} {finding['code']}{who}: {finding['headline']}")
    parts += [f"undecided {check['name']}: {check['reason']}" for check in report["checks"] if check["verdict"] == "undecided"]
    return "; ".join(parts)


def told_of_values(report: dict) -> str:
    """Whether steps were looked at (how many is a matter of time), what loops were seen, and what was found."""
    found = [re.findall(r"watched (\d+) of (\d+) steps", check["reason"]) for check in report["checks"]]
    watched, steps = (sum(int(pair[i]) for pairs in found for pair in pairs) for i in (0, 1))
    passes = sum(check["examined"].get("passes", 0) for check in report["checks"] if check["name"] == "loaded-data")
    parts = [f"{'some' if watched else 'none'} of {steps} steps, {passes} passes over loaders"]
    parts += [f"{one['severity']} {one['code']}: {one['headline']}" for one in report["findings"]]
    return "; ".join(parts)


def judge(program: Program, plain: Seen, under: Seen, changed: str) -> list:
    problems = []
    if under.status != plain.status:
        problems.append(f"status {under.status} under lockstep, {plain.status} without")
    if changed:
        problems.append(f"other output: {changed}")
    problems += [f"left behind: {process}" for process in set(under.left) - set(plain.left)]
    if under.report is None:
        problems.append("no report")
    elif under.report["verdict"] != "pass":
        problems.append("not a pass")
    else:
        problems += [f"finding {one['code']}" for one in under.report["findings"] if one["severity"] != "note"]
    return problems


class Compared:
    """A program as it is, and what is another thing in the ways to run it under lockstep."""

    def __init__(self, program: Program, lockstep: pathlib.Path, folder: pathlib.Path, scratch: pathlib.Path) -> None:
        self.program, self.lockstep, self.folder, self.scratch = program, lockstep, folder, scratch
        self.plain = [run(program, folder, scratch / "plain")]

    def under(self, name: str, *options: str) -> Seen:
        directory = self.scratch / f"run {name}"
        before = (self.lockstep, "run", *options, "--exit", "program", "--run-dir", directory, "--")
        seen = run(self.program, self.folder, self.scratch / name, before)
        with contextlib.suppress(OSError, ValueError):
            seen.report = json.loads((directory / "report.json").read_text())
        return seen

    def changed(self, seen: Seen, name: str, *options: str) -> str:
        """The first plain run may have compiled something, and no two runs of some programs print the same."""
        changed = difference(self.plain, [seen])
        if changed and len(self.plain) == 1:
            self.plain.append(run(self.program, self.folder, self.scratch / "again"))
            changed = difference(self.plain, [seen])
        if changed:
            changed = difference(self.plain, [seen, self.under(f"{name} again", *options)])
        return changed


def compare(program: Program, lockstep: pathlib.Path, torch: pathlib.Path, scratch: pathlib.Path) -> tuple:
    """What is in its row after the name, and what is not right."""
    try:
        folder = environment_of(program.library, torch)
    except Failed as failed:
        return str(failed), ["not run", "not run"], ["cannot be installed"]
    compared = Compared(program, lockstep, folder, scratch)
    plain, said, problems = compared.plain[0], [], []
    if plain.status != program.status:
        problems.append(f"plain: status {plain.status}, expected {program.status}")
    for name, options, tell in (("under", (), told), ("watched", ("--watch",), told_of_values)):
        seen = compared.under(name, *options)
        wrong = judge(program, plain, seen, compared.changed(seen, name, *options))
        problems += [f"{name}: {problem}" for problem in wrong]
        said.append(tell(seen.report) if seen.report else "no report")
        print(f"    {plain.seconds:.1f} s plain, {seen.seconds:.1f} s {name}", file=sys.stderr)
    last = plain.lines[-1] if plain.status and plain.lines else ""
    return f"status {plain.status} {last}".strip(), said, problems


# ---------------------------------------------------------------------------------------------- table


def cell(text: str) -> str:
    return re.sub(r"\s+", " ", text.replace("|", "\\|"))[:400]


def row_of(program: Program, plain: str, said: list, problems: list) -> str:
    main = pinned(program.library).read_text().splitlines()[0].lstrip("# ")
    verdict = "same" if not problems else f"**differs**: {'; '.join(problems)}"
    return f"| {program.name} | {cell(main)} | {cell(plain)} | {cell(verdict)} | {' | '.join(map(cell, said))} |"


def in_table(name: str) -> str:
    return next((line for line in TABLE.read_text().splitlines() if line.startswith(f"| {name} |")), "")


def write(rows: dict) -> None:
    """Rows of programs that were not run stay."""
    lines = TABLE.read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|---"))
    kept = {program.name: rows.get(program.name) or in_table(program.name) for program in PROGRAMS}
    head = [line for line in lines[:start + 1]]
    tail = [line for line in lines[start + 1:] if not line.startswith("|")]
    TABLE.write_text("\n".join([*head, *filter(None, kept.values()), *tail]) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep", type=pathlib.Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--write", action="store_true", help="into the table, instead of comparing with it")
    parser.add_argument("--keep", type=pathlib.Path, help="keep outputs and runs of what is not right there")
    options = parser.parse_args()
    chosen = [one for one in PROGRAMS if not options.names or any(name.lower() in one.name.lower() for name in options.names)]
    if not chosen:
        parser.error(f"no program has that in its name; there are: {', '.join(one.name for one in PROGRAMS)}")
    torch, rows, wrong = folder_of_torch(), {}, 0
    for program in chosen:
        print(program.name, file=sys.stderr)
        with tempfile.TemporaryDirectory(prefix="ls-", dir="/tmp") as scratch:
            plain, said, problems = compare(program, options.lockstep.resolve(), torch, pathlib.Path(scratch))
            if problems and options.keep:
                with contextlib.suppress(shutil.Error):  # Sockets cannot be copied; the rest is.
                    shutil.copytree(scratch, options.keep / program.name.replace(" ", "-"), dirs_exist_ok=True, symlinks=True)
        rows[program.name] = row_of(program, plain, said, problems)
        print(rows[program.name], flush=True)
        if not options.write and not problems and rows[program.name] != in_table(program.name):
            problems.append("not as in the table")
            print(f"    docs/third_party.md has another row for {program.name}: look at both, then --write", file=sys.stderr)
        wrong += bool(problems)
    if options.write:
        write(rows)
    print(f"{len(chosen)} programs, {wrong} not right", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
