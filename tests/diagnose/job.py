"""Jobs that lockstep did not start: ranks of a program by their environment alone, ended by the test that began them."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time
import unittest

PROGRAM = os.environ["LOCKSTEP_PROGRAM"]
PYTHON = os.environ.get("LOCKSTEP_PYTHON", "")
OURS = pathlib.Path(__file__).resolve().parent / "programs"
FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "fixtures" / "programs"
HANGS_WITHIN_S = 150
LOOK_EVERY_S = 2


def source(name: str) -> pathlib.Path:
    return OURS / name if (OURS / name).exists() else FIXTURES / name


def line_of(name: str, site: str) -> int:
    lines = source(name).read_text().splitlines()
    return next(number for number, text in enumerate(lines, 1) if f"# SITE: {site}" in text)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def state_of(pid: int) -> str:
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def tracer_of(pid: int) -> set[str]:
    traced = set()
    for status in pathlib.Path(f"/proc/{pid}/task").glob("*/status"):
        traced |= {line.split()[1] for line in status.read_text().splitlines() if line.startswith("TracerPid:")}
    return traced


class Diagnosis:
    def __init__(self, done: subprocess.CompletedProcess) -> None:
        self.status = done.returncode
        self.errors = done.stderr.decode()
        self.document = json.loads(done.stdout) if done.stdout else {}

    @property
    def finding(self) -> dict:
        return self.document["findings"][0]

    @property
    def ranks(self) -> dict[int, dict]:
        return {each["rank"]: each for each in self.document["ranks"]}

    def said(self) -> str:
        kept = {key: value for key, value in self.document.items() if key != "ranks"}
        for each in self.document.get("ranks", []):
            each.pop("stack", None)
        return json.dumps({**kept, "ranks": self.document.get("ranks")}, indent=1) + self.errors


@unittest.skipUnless(PYTHON, "needs a Python that has torch in LOCKSTEP_PYTHON")
class JobTest(unittest.TestCase):
    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory(prefix="lockstep-diagnose-")
        self.addCleanup(scratch.cleanup)
        self.directory = pathlib.Path(scratch.name)
        self.pipe = self.directory / "pipe"
        os.mkfifo(self.pipe)
        self.ranks: list[subprocess.Popen] = []
        self.addCleanup(self.end)

    def start(self, world: int, name: str, *arguments: str) -> None:
        port = str(free_port())
        for rank in range(world):
            variables = {
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world),
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
            log = (self.directory / f"log{rank}").open("wb")
            self.ranks.append(subprocess.Popen(
                [PYTHON, str(source(name)), *arguments], env={**os.environ, **variables}, cwd=self.directory,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True))
            log.close()

    def end(self) -> None:
        for process in self.ranks:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def diagnose(self, *arguments: str) -> Diagnosis:
        living = [str(process.pid) for process in self.ranks if process.poll() is None]
        self.assertTrue(living, "all ranks have ended")
        return Diagnosis(subprocess.run(
            [PROGRAM, "diagnose", "--json", *(arguments or living[:1])], capture_output=True, timeout=60,
            stdin=subprocess.DEVNULL, env={**os.environ, "XDG_CACHE_HOME": str(self.directory / "cache")}))

    def diagnose_when_it_hangs(self) -> Diagnosis:
        """Until somebody is found to be waited for: the ranks import torch first, and a wait is none before 10 s."""
        deadline = time.monotonic() + HANGS_WITHIN_S
        while True:
            diagnosis = self.diagnose()
            if diagnosis.status == 1 or time.monotonic() > deadline:
                logs = "".join(log.read_text() for log in sorted(self.directory.glob("log*")))
                self.assertEqual(diagnosis.status, 1, diagnosis.said() + logs)
                return diagnosis
            time.sleep(LOOK_EVERY_S)

    def assert_untouched(self) -> None:
        """Nobody was stopped, is traced, or has ended."""
        for process in self.ranks:
            if process.poll() is None:
                self.assertIn(state_of(process.pid), "SRD")
                self.assertEqual(tracer_of(process.pid), {"0"})

    def assert_named(self, diagnosis: Diagnosis, name: str, culprit: int, site: str) -> None:
        self.assertEqual(diagnosis.finding["culprits"], [culprit], diagnosis.said())
        self.assert_at(diagnosis, name, culprit, site)

    def assert_at(self, diagnosis: Diagnosis, name: str, rank: int, site: str) -> None:
        at = diagnosis.ranks[rank]["site"]
        self.assertEqual((pathlib.Path(at["file"]).name, at["line"]), (name, line_of(name, site)), diagnosis.said())

    def assert_goes_on(self) -> None:
        for process in self.ranks:
            self.assertEqual(process.wait(timeout=90), 0, "".join(
                log.read_text() for log in sorted(self.directory.glob("log*"))))

    def let_go(self) -> None:
        descriptor = os.open(self.pipe, os.O_RDWR)
        os.write(descriptor, b"go")
        self.addCleanup(os.close, descriptor)
