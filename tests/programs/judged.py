"""Runs programs of fixtures/programs under lockstep and compares what is said of them with their table."""

import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "fixtures" / "programs"))

import table  # noqa: E402

DEADLINE_S = 180
BUILD = pathlib.Path(os.environ.get("LOCKSTEP_BUILD_DIR", SOURCE / "build")).resolve()


@dataclasses.dataclass
class Judged:
    """What was wrong with the judgement of one run; empty strings where nothing was."""

    false_alarm: str = ""  # said of a healthy program
    wrong_culprit: str = ""  # a rank named that the table does not name
    other: str = ""  # nothing said, another code, another line, nobody named, or no end
    wall_s: float = 0.0
    said: str = ""

    @property
    def is_right(self) -> bool:
        return not (self.false_alarm or self.wrong_culprit or self.other)

    def problems(self) -> str:
        return "; ".join(text for text in (self.false_alarm, self.wrong_culprit, self.other) if text)


def lockstep() -> str:
    return os.environ.get("LOCKSTEP_PROGRAM", str(BUILD / "bin" / "lockstep"))


def command(row: table.Row, world: int, run: pathlib.Path) -> list[str]:
    ranks = () if row.launcher else ("-n", str(world))
    return [lockstep(), "run", *row.options, *ranks, "--run-dir", str(run), "--", *program(row)]


def program(row: table.Row) -> tuple:
    python = os.environ.get("LOCKSTEP_PYTHON", str(SOURCE / ".venv" / "bin" / "python"))
    path, launcher = str(table.PROGRAMS / row.program), (python, *row.launcher)
    if row.program.endswith(".cc"):
        path, launcher = str(BUILD / "programs" / row.program.removesuffix(".cc")), launcher if row.launcher else ()
    return (*launcher, path, *row.arguments.format(build=BUILD).split())


def run(row: table.Row, world: int, keep: pathlib.Path | None = None) -> Judged:
    """`keep`: where the run directory is moved if the judgement is not right."""
    with tempfile.TemporaryDirectory(prefix="lockstep-programs-") as scratch:
        directory = pathlib.Path(scratch) / "run"
        process = subprocess.Popen(command(row, world, directory), cwd=SOURCE, stdin=subprocess.DEVNULL,
                                   env={**os.environ, "TMPDIR": scratch},  # what a program leaves there goes with it
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace")
        ended = True
        try:
            said = process.communicate(timeout=DEADLINE_S)[1]
        except subprocess.TimeoutExpired:
            ended = False
            process.send_signal(signal.SIGTERM)  # a background shell has SIGINT ignored
            said = process.communicate()[1]
        try:
            report = json.loads((directory / "report.json").read_text())
        except (OSError, ValueError) as error:
            return Judged(other=f"no report: {error}; {said[-400:]}", said=said)
        judged = judge(row, world, report, process.returncode)
        untold = [words for words in row.tells if words not in said]
        if untold and judged.is_right:
            judged.other = f"no notice with {untold}"
        remove_what_is_left(report)
        judged.said = said
        if not ended:
            judged.other = f"it had not ended after {DEADLINE_S} s; {judged.other}"
        if keep and not judged.is_right:
            shutil.rmtree(keep, ignore_errors=True)
            keep.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(directory, keep)
        return judged


def judge(row: table.Row, world: int, report: dict, status: int) -> Judged:
    judged = Judged(wall_s=report.get("wall_s", 0.0))
    code, culprits = row.expected(world)
    findings = [f for f in report["findings"] if f["severity"] != "note" or f["code"] == code]
    said = "; ".join(f"{f['code']} {f['culprits']} {f['headline']}" for f in findings)
    if not code:
        if findings:
            judged.false_alarm = said
        elif status != (2 if row.undecided else 0):
            judged.other = f"exit status {status}: {reasons(report)}"
        return judged
    named = {rank for finding in findings for rank in finding["culprits"]}
    if not named <= culprits:
        judged.wrong_culprit = said
    elif len(findings) != 1:
        judged.other = said or f"nothing said, exit status {status}: {reasons(report)}"
    else:
        judged.other = differences(row, findings[0], code, culprits, status)
    return judged


def remove_what_is_left(report: dict) -> None:
    """What a program left, and lockstep leaves to its user: shared memory."""
    for path in shared_memory_in(" ".join(f["headline"] for f in report["findings"])):
        pathlib.Path(path).unlink(missing_ok=True)


def shared_memory_in(text: str) -> list:
    return re.findall(r"/dev/shm/psm_\w+", text)


def differences(row: table.Row, finding: dict, code: str, culprits: frozenset, status: int) -> str:
    wrong = []
    if finding["code"] != code:
        wrong.append(f"{finding['code']} for {code}")
    if set(finding["culprits"]) != culprits:
        wrong.append(f"culprits {finding['culprits']} for {sorted(culprits)}")
    if status != row.status:
        wrong.append(f"exit status {status} for {row.status}")
    if not set(row.also) <= set(finding["also"]):
        wrong.append(f"also {finding['also']} for {list(row.also)}")
    said = "\n".join((finding["headline"], *evidence_of(finding)))
    wrong += [f"not a word of `{words}` in {said!r}" for words in row.says if words not in said]
    for role in row.sites:
        lines = [(pathlib.Path(s["file"]).name, s["line"]) for s in finding["sites"] if s["role"] == role]
        if (row.program, row.line(role)) not in lines:
            wrong.append(f"{role} at {lines} for line {row.line(role)}")
    return f"{', '.join(wrong)}: {finding['headline']}" if wrong else ""


def evidence_of(finding: dict) -> list:
    return [line["text"] for line in finding["evidence"]]


def reasons(report: dict) -> str:
    return "; ".join(f"{c['name']}: {c['reason']}" for c in report["checks"] if c["verdict"] not in ("pass", "skipped"))
