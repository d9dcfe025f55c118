"""`lockstep clean` after all of a lockstep was killed: it ends what is proven to be of that job, and nothing else."""

import os
import pathlib
import signal
import subprocess

from program import DEADLINE_S, PROGRAM, ProgramTest, environment
from test_ending import alive, children_of, job_of, pids, wait_until

# A child in a session of its own, and one that ignores TERM and has a child whose environment is empty.
LEAVE = "setsid sleep 300 & (trap '' TERM; env -i sleep 300 & wait) & wait"


class Clean(ProgramTest):
    def setUp(self) -> None:
        super().setUp()
        self.run_directory = str(self.directory / "run")

    def start(self, *arguments: str) -> subprocess.Popen:
        process = subprocess.Popen([PROGRAM, "run", "--run-dir", "run", *arguments], cwd=self.directory,
                                   env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def members(self) -> list[int]:
        """What has the marker, and what descends from that."""
        found = [pid for pid in pids() if alive(pid) and job_of(pid) == self.job]
        return sorted({*found, *(child for pid in found for child in children_of(pid))})

    def killed(self) -> list[int]:
        """What is left of a job when all of its lockstep is killed at once."""
        process = self.start("-n", "2", "--", "sh", "-c", LEAVE)
        supervisor = wait_until(lambda: children_of(process.pid), DEADLINE_S, "a supervisor")[0]
        wait_until(lambda: sum(job_of(pid) != "" for pid in children_of(supervisor)) == 2, DEADLINE_S, "ranks")
        self.job = job_of(children_of(supervisor)[0])
        wait_until(lambda: len(self.members()) == 8, DEADLINE_S, "all processes")
        self.addCleanup(lambda: [os.kill(pid, signal.SIGKILL) for pid in self.members()])
        for pid in (process.pid, supervisor):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        # The ranks die with their parent; their children do not.
        wait_until(lambda: len(self.members()) == 6, DEADLINE_S, "no ranks")
        return self.members()

    def test_shows_then_ends(self) -> None:
        left = self.killed()
        os.kill(left[0], signal.SIGSTOP)
        done = self.lockstep("clean", "--dry-run", "run")
        self.assertEqual(done.status, 1, done)
        for pid in left:
            self.assertIn(f" {pid} ", done.out)
        self.assertEqual(self.members(), left)
        live = list(pathlib.Path("/dev/shm").glob(f"lockstep-*-{self.run_id()}-*"))
        self.assertEqual(self.lockstep("clean", "run").status, 0)
        self.assertEqual((self.members(), [path for path in live if path.exists()]), ([], []))
        self.assertFalse((self.directory / "run/history/live").is_symlink())
        self.assertEqual(self.lockstep("clean", "run").out, "nothing is left of any run\n")

    def run_id(self) -> str:
        return (self.directory / "run/run.json").read_text().split('"id": "')[1].split('"')[0]

    def test_the_next_run_tells(self) -> None:
        self.killed()
        if not (self.directory / "run/history/live").is_symlink():
            self.skipTest("live files are not in memory here")
        done = self.lockstep("run", "--run-dir", "next", "--", "true")
        self.assertIn("`lockstep clean run`", done.err)
        self.lockstep("clean", "run")
        self.assertNotIn("`lockstep clean run`", self.lockstep("run", "--run-dir", "last", "--", "true").err)

    def test_a_live_run_is_not_touched(self) -> None:
        process = self.start("-n", "2", "--", "sleep", "300")
        wait_until(lambda: children_of(process.pid), DEADLINE_S, "a supervisor")
        supervisor = children_of(process.pid)[0]
        wait_until(lambda: sum(job_of(pid) != "" for pid in children_of(supervisor)) == 2, DEADLINE_S, "ranks")
        ranks = children_of(supervisor)
        done = self.lockstep("clean", "run")
        self.assertEqual((done.status, done.out), (0, "nothing is left of any run\n"))
        self.assertTrue(all(alive(pid) for pid in ranks))
        process.terminate()
        process.wait()

    def test_a_survivor_that_was_allowed_is_not_touched(self) -> None:
        done = self.lockstep("run", "--allow-survivor", "sleep", "--run-dir", "run", "-n", "1", "--",
                             "sh", "-c", "sleep 300 > /dev/null 2>&1 & echo $!")
        pid = int(done.out)
        self.addCleanup(os.kill, pid, signal.SIGKILL)
        self.assertEqual(self.lockstep("clean", "run").out, "nothing is left of any run\n")
        self.assertTrue(alive(pid))

    def test_what_is_not_proven_is_not_touched(self) -> None:
        left = self.killed()
        (self.directory / "run/job").rename(self.directory / "elsewhere")
        done = self.lockstep("clean", "run")
        self.assertEqual(done.status, 0, done)
        self.assertIn("not touched", done.out)
        self.assertEqual(self.members(), left)
        (self.directory / "run/job").write_text("job of-a-later-run\n")
        self.assertIn("not touched", self.lockstep("clean", "run").out)
        self.assertEqual(self.members(), left)
        (self.directory / "elsewhere").rename(self.directory / "run/job")
        self.assertEqual(self.lockstep("clean", "run").status, 0)
        self.assertEqual(self.members(), [])
