"""`lockstep diagnose` without torch: what it may look at, what it may not, and what it says of either."""

import os
import pathlib
import subprocess
import unittest

PROGRAM = os.environ["LOCKSTEP_PROGRAM"]
WAITS = "import sys; sys.stdin.read()"
UNDUMPABLE = "import ctypes, sys; ctypes.CDLL(None).prctl(4, 0); " + WAITS
SYSTEM_PYTHON = "/usr/bin/python3"  # That any user may start.


class Rights(unittest.TestCase):
    def rank(self, text: str, port: str, **options: int) -> subprocess.Popen:
        variables = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "here", "MASTER_PORT": port, "PATH": os.defpath}
        process = subprocess.Popen(
            [SYSTEM_PYTHON, "-c", f"print('up', flush=True); {text}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=variables, cwd="/", **options)
        process.stdout.readline()
        self.addCleanup(process.communicate)
        return process

    def diagnose(self, *arguments: str, **options: int) -> subprocess.CompletedProcess:
        program = pathlib.Path(PROGRAM)
        return subprocess.run(
            [program, "diagnose", *arguments], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"]}, **options)  # Without a HOME there are no notes.

    def test_no_such_process(self) -> None:
        done = self.diagnose("4194303")
        self.assertEqual((done.returncode, done.stdout), (125, ""))
        self.assertIn("there is no process 4194303", done.stderr)

    def test_what_is_no_rank(self) -> None:
        done = self.diagnose(str(os.getpid()))
        self.assertEqual(done.returncode, 125)
        self.assertIn("is no rank", done.stderr)

    @unittest.skipUnless(pathlib.Path(SYSTEM_PYTHON).exists(), f"needs {SYSTEM_PYTHON}")
    def test_a_rank_that_waits_for_nobody(self) -> None:
        rank = self.rank(WAITS, "1")
        done = self.diagnose(str(rank.pid))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("1 of 1 ranks of the job here:1", done.stdout)
        self.assertIn("reads from or writes to a pipe", done.stdout)

    @unittest.skipUnless(os.geteuid() == 0 and pathlib.Path(SYSTEM_PYTHON).exists(), f"needs root and {SYSTEM_PYTHON}")
    def test_what_is_not_ours_to_look_at(self) -> None:
        try:
            subprocess.run([PROGRAM, "--version"], capture_output=True, user=1001, cwd="/", check=True)
        except (PermissionError, subprocess.CalledProcessError):
            self.skipTest(f"needs a {PROGRAM} that any user may start")
        for name, text, user, said in (
                ("another user's", WAITS, 1002, "it runs as uid 1002, lockstep as uid 1001"),
                ("undumpable", UNDUMPABLE, 1001, "PR_SET_DUMPABLE 0")):
            with self.subTest(name):
                rank = self.rank(text, str(user), user=user)
                done = self.diagnose(str(rank.pid), user=1001, cwd="/")
                self.assertEqual((done.returncode, done.stdout), (125, ""))
                self.assertIn(said, done.stderr)
                self.assertIn("help: ", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
