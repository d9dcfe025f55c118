"""Makes a program of a run and runs it: the same must be said of it, and nothing of its twin that is mended."""

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import tempfile

DEADLINE_S = 240


@dataclasses.dataclass
class Replayed:
    """What was found in the run, in the program made of it, and in its twin; or why none was made."""

    run: tuple = ()
    again: tuple = ()
    fixed: tuple = ()
    refused: str = ""

    @property
    def is_right(self) -> bool:
        return bool(self.refused) or (self.run == self.again and self.fixed == ())


def lockstep() -> str:
    return os.environ["LOCKSTEP_PROGRAM"]


def found(report: dict) -> tuple:
    """Code and culprits of the first error; else of the first warning."""
    findings = sorted(report["findings"], key=lambda f: ["error", "warning", "note"].index(f["severity"]))
    return (findings[0]["code"], tuple(findings[0]["culprits"])) if findings else ()


def export(run: pathlib.Path, program: pathlib.Path, *options: str) -> str:
    """Why it was refused; empty: it was not."""
    done = subprocess.run([lockstep(), "export", str(run), "--to", "program", "--out", str(program), *options],
                          capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode in (0, 125), done
    assert done.returncode == 0 or not program.exists(), done
    return done.stderr.splitlines()[0] if done.returncode else ""


def judged(program: pathlib.Path, world: int, directory: pathlib.Path) -> dict:
    limits = ["--stall-limit", "10"] if "--stall-limit" in program.read_text() else []  # As its head says.
    command = [os.environ.get("LOCKSTEP_RUNNER", lockstep()), "run", "-n", str(world), *limits, "--time-limit", "150",
               "--run-dir", str(directory), "--", os.environ["LOCKSTEP_PYTHON"], str(program)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        process.wait(timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        process.wait()
    return json.loads((directory / "report.json").read_text())


def world_of(program: pathlib.Path) -> int:
    return int(program.read_text().split("if WORLD != ")[1].split(":")[0])


def code_of(program: pathlib.Path) -> str:
    return program.read_text().split('"""', 1)[1][:5]


def replay(run: pathlib.Path) -> Replayed:
    """`run`: a run directory, which need not have a report."""
    with tempfile.TemporaryDirectory(prefix="lockstep-exported-") as scratch:
        place = pathlib.Path(scratch)
        done = subprocess.run([lockstep(), "check", "--format", "json", str(run)], capture_output=True, text=True,
                              timeout=DEADLINE_S)
        report = json.loads(done.stdout)
        result = Replayed(run=found(report))
        result.refused = export(run, place / "again.py") or export(run, place / "fixed.py", "--fixed")
        if result.refused:
            return result
        code = code_of(place / "again.py")
        for finding in report["findings"]:  # The one that it shows.
            if finding["code"] == code:
                result.run = (code, tuple(finding["culprits"]))
                break
        world = world_of(place / "again.py")
        result.again = found(judged(place / "again.py", world, place / "again"))
        report = judged(place / "fixed.py", world, place / "fixed")
        result.fixed = found(report) if report["exit"] == 0 or report["findings"] else (f"exit {report['exit']}",)
        return result
