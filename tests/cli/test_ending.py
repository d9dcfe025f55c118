"""However lockstep ends, nothing of the job is left and the status is a documented one. Looked at from outside."""

import json
import os
import re
import signal
import subprocess
import time
import unittest

from program import PROGRAM, ProgramTest, environment

SLOW = ("suite", "--scenario", "gradient-equivalence", "--implementation", "ddp", "--dtype", "float64")
GONE_S = 3.0
DEADLINE_S = 60.0


def wait_until(condition, limit_s: float, what: str):
    """The first true value of `condition`, asked again and again; an error after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
    raise AssertionError(f"not within {limit_s} s: {what}")


def read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def parent_of(pid: int) -> int:
    found = re.search(rb"^PPid:\s+(\d+)", read(f"/proc/{pid}/status"), re.M)
    return int(found.group(1)) if found else 0


def children_of(pid: int) -> list[int]:
    return [p for p in pids() if parent_of(p) == pid]


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def job_of(pid: int) -> str:
    found = re.search(rb"(?:^|\0)LOCKSTEP_JOB=([^\0]+)", read(f"/proc/{pid}/environ"))
    return found.group(1).decode() if found else ""


def alive(pid: int) -> bool:
    return b"\nState:\tZ" not in read(f"/proc/{pid}/status") and os.path.exists(f"/proc/{pid}")


class Job:
    """A suite that runs, and who is who in it."""

    def __init__(self, test: ProgramTest, *arguments: str) -> None:
        self.directory = test.directory
        self.process = subprocess.Popen(
            [PROGRAM, *SLOW, "--jobs", "2", "--run-dir", "run", *arguments], cwd=test.directory, env=environment(),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, start_new_session=True,
        )
        test.addCleanup(self.discard)
        self.guard = self.process.pid
        self.supervisor = wait_until(lambda: children_of(self.guard), DEADLINE_S, "a supervisor")[0]
        self.lanes = wait_until(self.find_lanes, DEADLINE_S, "two lanes with a warm parent")
        self.rank = wait_until(self.find_rank, DEADLINE_S, "a rank")
        # Each lane is a job of its own, within this one.
        self.markers = {job_of(p) for lane in self.lanes for p in (parent_of(lane), *children_of(lane)) if job_of(p)}

    def find_lanes(self) -> list[int]:
        """They run the cases: children of guards of their own, which are children of the supervisor."""
        lanes = [p for guard in children_of(self.supervisor) for p in children_of(guard)]
        return lanes if len(lanes) == 2 and all(self.find_warm_parents(lane) for lane in lanes) else []

    def find_rank(self) -> int:
        """A rank in a process group and with a conversation: a child of a lane that a warm parent forked."""
        for lane in self.lanes:
            warm = self.find_warm_parents(lane)
            ranks = [p for p in children_of(lane) if p not in warm and job_of(p)]
            if len(ranks) >= 3:
                return ranks[0]
        return 0

    def find_warm_parents(self, lane: int) -> list[int]:
        """They were started, not forked: each is the only one with its own command line before ranks exist."""
        mine = sorted(p for p in children_of(lane) if b"--warm" in read(f"/proc/{p}/cmdline"))
        seen, warm = set(), []
        for pid in mine:
            command = read(f"/proc/{pid}/cmdline")
            if command not in seen:
                seen.add(command)
                warm.append(pid)
        return warm

    def members(self) -> list[int]:
        return [p for p in pids() if alive(p) and (p in (self.guard, self.supervisor) or job_of(p) in self.markers)]

    def left_in_shared_places(self) -> list[str]:
        """Only this run's: others may be on the machine."""
        run_id = json.loads((self.directory / "run" / "run.json").read_text())["id"]
        return [name for place in ("/dev/shm", "/tmp") for name in os.listdir(place) if run_id in name]

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, out.decode(), err.decode()

    def discard(self) -> None:
        for pid in self.members() if hasattr(self, "markers") else [self.guard]:
            os.kill(pid, signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            stream.close()


class Ending(ProgramTest):
    def assert_nothing_left(self, job: Job) -> None:
        wait_until(lambda: not job.members(), GONE_S, f"all gone, left: {job.members()}")
        self.assertEqual(job.left_in_shared_places(), [])
        run = self.directory / "run"
        self.assertEqual(list(run.rglob("*.tmp*")) + list(run.rglob("scratch")), [])

    def test_supervisor_killed(self) -> None:
        job = Job(self)
        os.kill(job.supervisor, signal.SIGKILL)
        status, _, err = job.end()
        self.assertEqual(status, 2, err)
        self.assertIn("SIGKILL", err)
        wait_until(lambda: not job.members(), GONE_S, "all gone")
        self.assertEqual(job.left_in_shared_places(), [])

    def test_guard_killed(self) -> None:
        job = Job(self)
        os.kill(job.guard, signal.SIGKILL)
        job.process.wait(timeout=DEADLINE_S)
        self.assert_nothing_left(job)

    def test_rank_killed(self) -> None:
        job = Job(self)
        os.kill(job.rank, signal.SIGKILL)
        status, out, err = job.end()
        self.assertEqual(status, 1, out + err)
        self.assertIn("LS101", out)
        self.assert_nothing_left(job)
        report = json.loads((self.directory / "run" / "report.json").read_text())
        self.assertEqual([f["code"] for f in report["findings"]], ["LS101"], out)

    def test_warm_parent_killed(self) -> None:
        job = Job(self)
        os.kill(job.find_warm_parents(parent_of(job.rank))[0], signal.SIGKILL)
        status, out, err = job.end()
        self.assertIn(status, (0, 2), out + err)
        self.assertNotIn("error[", out)
        self.assert_nothing_left(job)

    def test_stopped_rank_is_waited_for(self) -> None:
        job = Job(self)
        os.kill(job.rank, signal.SIGSTOP)
        with self.assertRaises(subprocess.TimeoutExpired):
            job.process.wait(timeout=3)
        os.kill(job.rank, signal.SIGCONT)
        status, out, err = job.end()
        self.assertEqual(status, 0, out + err)

    def test_interrupted_once(self) -> None:
        job = Job(self)
        os.killpg(job.guard, signal.SIGINT)
        status, out, err = job.end()
        self.assertEqual(status, 130, out + err)
        self.assertIn("interrupted", out)
        self.assert_nothing_left(job)
        self.assertTrue((self.directory / "run" / "report.json").exists())

    def test_terminated(self) -> None:
        job = Job(self)
        os.kill(job.guard, signal.SIGTERM)
        status, out, err = job.end()
        self.assertEqual(status, 130, out + err)
        self.assert_nothing_left(job)

    def test_interrupted_twice(self) -> None:
        job = Job(self)
        os.kill(job.supervisor, signal.SIGSTOP)  # So that the first cannot be acted on before the second.
        os.killpg(job.guard, signal.SIGINT)
        os.killpg(job.guard, signal.SIGINT)
        os.kill(job.supervisor, signal.SIGCONT)
        status, out, err = job.end()
        self.assertEqual(status, 130, out + err)
        wait_until(lambda: not job.members(), GONE_S, "all gone")
        self.assertEqual(job.left_in_shared_places(), [])


def can_mount() -> bool:
    return os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


@unittest.skipUnless(can_mount(), "needs to mount: root, or a user namespace")
class NoSpace(ProgramTest):
    """In a mount namespace of its own: a place that is full or read-only."""

    def run_in(self, mount: str) -> subprocess.CompletedProcess:
        (self.directory / "place").mkdir()
        script = f'{mount} && exec "$0" "$@"'
        return subprocess.run(
            ["unshare", "-m", "sh", "-c", script, PROGRAM, *SLOW, "-n", "2", "--jobs", "1", "--run-dir", "place/run"],
            cwd=self.directory, env=environment(), capture_output=True, timeout=DEADLINE_S, stdin=subprocess.DEVNULL,
        )

    def test_read_only(self) -> None:
        done = self.run_in("mount -t tmpfs -o ro none place")
        self.assertEqual(done.returncode, 125, done)
        self.assertIn(b"lockstep: cannot", done.stderr)

    def test_full_from_the_start(self) -> None:
        done = self.run_in("mount -t tmpfs -o size=64k none place")
        self.assertEqual(done.returncode, 125, done)
        self.assertIn(b"lockstep: ", done.stderr)

    def test_full_while_running(self) -> None:
        for megabytes in (1, 2):
            with self.subTest(megabytes=megabytes):
                done = self.run_in(f"mount -t tmpfs -o size={megabytes}m none place")
                self.assertIn(done.returncode, (2, 125), done)
                self.assertTrue(b"space" in done.stderr or b"space" in done.stdout, done)
                self.assertNotIn(b"SIGBUS", done.stdout + done.stderr)
                (self.directory / "place").rmdir()


if __name__ == "__main__":
    unittest.main()
