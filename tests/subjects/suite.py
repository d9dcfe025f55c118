"""Runs the suite over a subject, and reads its report."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.environ["LOCKSTEP_PROGRAM"]
PYTHON = os.environ.get("LOCKSTEP_PYTHON", sys.executable)
FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "fixtures" / "subjects"
DEADLINE_S = 1200


def processes_with(text):
    """Those that have it in their environment."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            if text.encode() in entry.read_bytes():
                found.append(entry.parent.name)
        except OSError:
            pass
    return found


def silence():
    """What fixtures/subjects/silence.py has shown: rows of name, as_told and torch."""
    words = [PYTHON, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(FIXTURES / "silence.py")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment, timeout=DEADLINE_S)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not rows:
        raise RuntimeError(done.stderr)
    return rows


def codes_of(report):
    return {finding["code"] for finding in report["findings"]}


def missed_mutants(report):
    """Not found, or with another code, or another rank than that of the mutant."""
    return {m["name"] for case in report["cases"] for m in case["mutants"] if case["verdict"] != "pass"}


class SubjectTest(unittest.TestCase):
    program = PROGRAM

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="lockstep-subjects-")
        self.addCleanup(scratch.cleanup)
        self.directory = pathlib.Path(scratch.name)

    def suite(self, subject, *arguments, python=PYTHON, **environment):
        self.runs = getattr(self, "runs", 0) + 1
        run = f"run{self.runs}"
        done = subprocess.run(
            [self.program, "suite", "--subject", subject, "--python", python, "--run-dir", run, "--color", "never", *arguments],
            cwd=self.directory, capture_output=True, text=True, timeout=DEADLINE_S, stdin=subprocess.DEVNULL,
            env={**os.environ, **environment}, check=False,
        )
        path = self.directory / run / "report.json"
        report = json.loads(path.read_text()) if path.exists() else {}
        return done, report

    def module(self, text, name="mine.py"):
        (self.directory / name).write_text(text)
        return f"./{name}"
