"""One job on two hosts, each with its own lockstep: `lockstep check` of both names what neither can see alone.

Their run directories lie in different places, so that the locksteps know nothing of each other while the job runs.
"""

import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time
import unittest

from host_namespaces import FIXTURES, PROGRAM, Network, must_build_tap, sh


def is_stalled(folder):
    return all("STALLED" in (folder / f"node{rank}/out").read_text() for rank in (1, 2))


def on_two_hosts(folder, what):
    """What is stalled on both gets SIGTERM."""
    with Network() as network:
        hosts = [network.start(rank, folder / f"node{rank + 1}", what) for rank in range(2)]
        try:
            end = time.monotonic() + 240
            while any(host.poll() is None for host in hosts) and not is_stalled(folder) and time.monotonic() < end:
                time.sleep(0.5)
            for host in hosts:
                if host.poll() is None:  # Its one child is lockstep, which ends the job on that host.
                    os.kill(int(pathlib.Path(f"/proc/{host.pid}/task/{host.pid}/children").read_text()), signal.SIGTERM)
            for host in hosts:
                host.wait(60)
        finally:
            for host in hosts:
                host.kill()  # And with it all of its processes.
    runs = [str(folder / f"node{rank + 1}/run") for rank in range(2)]
    return sh(PROGRAM, "check", *runs), runs


@unittest.skipUnless(os.geteuid() == 0 and shutil.which("ip") and shutil.which("unshare"), "namespaces want root, ip and unshare")
class Hosts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        must_build_tap()

    def judged(self, what):
        with tempfile.TemporaryDirectory() as place:
            told, runs = on_two_hosts(pathlib.Path(place), what)
            outputs = "".join((pathlib.Path(place) / f"node{i}/out").read_text()[-3000:] for i in (1, 2))
            self.assertIn("2 ranks on 2 hosts (1 node1: rank 0; 2 node2: rank 1)", told.stdout, outputs)
            return told

    def test_a_healthy_job(self):
        told = self.judged(f"{FIXTURES}/uneven_to_exit.py good")
        self.assertIn(" 0 fail, 0 undecided", told.stdout)
        self.assertEqual(told.returncode, 0, told.stdout)

    def test_who_left_the_loop(self):
        told = self.judged(f"{FIXTURES}/uneven_to_exit.py bad")
        self.assertIn("error[LS305]", told.stdout)
        self.assertIn("culprit    rank 1", told.stdout)
        self.assertEqual(told.returncode, 1)

    def test_who_never_comes(self):
        told = self.judged(f"{FIXTURES}/prefetch_thread.py bad")
        self.assertIn("error[LS301]", told.stdout)
        self.assertRegex(told.stdout, "rank 1 ha[sd] not entered all_reduce 0#7")
        self.assertIn("a thread of rank 1 was ended by ValueError", told.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
