"""A mutant of checkers/ or harness/model/ under what holds them: unit tests, then saved runs, then the suite's own mutants."""

import os
import shutil
import subprocess

TESTS = ("checkers_test", "model_test", "session_test", "dumps_test", "saved_runs_test")  # Short ones first.
PROGRAMS = [*TESTS, "lockstep"]


class CheckerTests:
    def __init__(self, programs, folder):
        self.programs, self.folder = programs, folder

    def run(self, words, mutant):
        """Status, and what it printed; a status of None: it took too long."""
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=150, check=False,
                                  env={**os.environ, "LOCKSTEP_MUTANT": str(mutant.number)})
        except subprocess.TimeoutExpired:
            return None, ""
        return done.returncode, done.stdout

    def judge(self, mutant):
        for test in TESTS:
            status, out = self.run([self.programs / test, "--gtest_brief=1", "--gtest_fail_fast"], mutant)
            failed = [line.split("] ")[1].split(" ")[0] for line in out.splitlines() if "[  FAILED  ]" in line]
            if status != 0:
                return {"outcome": "time-out" if status is None else "finding" if failed else "crash",
                        "cell": f"{test}/{failed[0]}" if failed else test, "codes": []}
        directory = self.folder / "run"
        shutil.rmtree(directory, ignore_errors=True)
        suite = [self.programs / "lockstep", "suite", "--run-dir", directory, "--format", "concise"]
        status, _said = self.run(suite, mutant)
        if status == 0:
            return {"outcome": "survived"}
        return {"outcome": "time-out" if status is None else "finding", "cell": "suite", "codes": []}
