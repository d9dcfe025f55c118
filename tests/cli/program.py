"""Runs the lockstep program in a directory of its own and keeps what it said."""

import dataclasses
import os
import pathlib
import pty
import re
import select
import subprocess
import tempfile
import time
import unittest

PROGRAM = os.environ["LOCKSTEP_PROGRAM"]
DEADLINE_S = 120


@dataclasses.dataclass
class Done:
    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def environment(**changes: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "LC_ALL", "LC_CTYPE")}
    return {**kept, "LANG": "C.UTF-8", "TERM": "xterm", **changes}


def without_times(text: str) -> str:
    """Durations of a report in any form."""
    text = re.sub(r"\[ *[\d.]+ s\]", "[TIME]", text)
    return re.sub(r'("wall_s": |time=")[\d.e+-]+', r"\1TIME", text)


class ProgramTest(unittest.TestCase):
    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory(prefix="lockstep-cli-")
        self.addCleanup(scratch.cleanup)
        self.directory = pathlib.Path(scratch.name)

    def lockstep(self, *arguments: str, **variables: str) -> Done:
        done = subprocess.run(
            [PROGRAM, *arguments], cwd=self.directory, env=environment(**variables), capture_output=True,
            timeout=DEADLINE_S, stdin=subprocess.DEVNULL,
        )
        return Done(done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8"))

    def on_terminal(self, *arguments: str, **variables: str) -> Done:
        """stdout and stderr are one terminal, as in a shell."""
        leader, follower = pty.openpty()
        process = subprocess.Popen(
            [PROGRAM, *arguments], cwd=self.directory, env=environment(**variables), stdin=follower, stdout=follower,
            stderr=follower,
        )
        os.close(follower)
        said, deadline = b"", time.monotonic() + DEADLINE_S
        try:
            while select.select([leader], [], [], max(0, deadline - time.monotonic()))[0]:
                try:
                    part = os.read(leader, 65536)
                except OSError:  # EIO: the other side is closed
                    part = b""
                if not part:
                    break
                said += part
            status = process.wait(timeout=max(1, deadline - time.monotonic()))
        finally:
            process.kill()
            process.wait()
            os.close(leader)
        return Done(status, said.decode("utf-8").replace("\r\n", "\n"), "")

    def assert_refused(self, done: Done, *said: str) -> None:
        """Status 125, a sentence on stderr, nothing on stdout, nothing written."""
        self.assertEqual(done.status, 125, done)
        self.assertEqual(done.out, "")
        self.assertTrue(done.err.startswith("lockstep: "), done.err)
        for part in said:
            self.assertIn(part, done.err)
        self.assertFalse((self.directory / ".lockstep").exists())
