"""One job on two hosts whose run directories lie side by side: judged while it runs, by what the locksteps tell.

For each of a hang, a dead host and a dead link: what is told, a twin that is not accused, and what cannot be known.
"""

import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time
import unittest

from host_namespaces import FIXTURES, PROGRAM, Network, must_build_tap, sh

TRAINS = """
import os, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
end = time.monotonic() + float(sys.argv[1])
step = torch.ones(1 << 16)
while True:
    go_on = torch.tensor(float(time.monotonic() < end or dist.get_rank() > 0))
    dist.all_reduce(go_on)
    dist.all_reduce(step)
    step /= 2
    if go_on < dist.get_world_size():
        break
    open(sys.argv[2] + f"/trains{dist.get_rank()}", "w").write(str(os.getpid()))
    time.sleep(0.05)
dist.destroy_process_group()
"""


class Job:
    """A job that runs; `said(i)` is the output of the lockstep of host i."""

    def __init__(self, network, folder, what):
        self.network, self.folder = network, folder
        (folder / "job").mkdir()
        self.hosts = [network.start(i, folder / f"node{i + 1}", what, folder / f"job/node{i + 1}") for i in range(2)]

    def said(self, i):
        return (self.folder / f"node{i + 1}/out").read_text()

    def both(self):
        return "\n----\n".join(self.said(i)[-6000:] for i in range(2))

    def until(self, holds, limit_s, what):
        begun = time.monotonic()
        while not holds():
            if time.monotonic() > begun + limit_s:
                raise AssertionError(f"{what}: not within {limit_s} s\n{self.both()}")
            time.sleep(0.1)
        return time.monotonic() - begun

    def trains(self):
        self.until(lambda: all((self.folder / f"trains{i}").exists() for i in range(2)), 240, "both train")
        self.until(lambda: all(self.beats(i) > 3 for i in range(2)), 60, "they hear of each other")

    def beats(self, i):
        heads = self.folder / f"job/node{i + 1}/heads.json"
        return json.loads(heads.read_text())["beat"] if heads.exists() else 0

    def ended(self):
        self.until(lambda: all(host.poll() is not None for host in self.hosts), 120, "both end")
        return [host.returncode for host in self.hosts]

    def within(self, i):
        """The lockstep of host i, and all processes below it, in a namespace of their own: as seen from here."""
        first = int(pathlib.Path(f"/proc/{self.hosts[i].pid}/task/{self.hosts[i].pid}/children").read_text())
        below, at = [first], 0
        while at < len(below):
            below += [int(pid) for pid in pathlib.Path(f"/proc/{below[at]}/task/{below[at]}/children").read_text().split()]
            at += 1
        return below

    def rank(self, i):
        return next(pid for pid in self.within(i) if b"trains.py" in (cmd := pathlib.Path(f"/proc/{pid}/cmdline").read_bytes())
                    and b"torch.distributed.run" not in cmd)

    def interrupt(self):
        for i, host in enumerate(self.hosts):
            if host.poll() is None:
                os.kill(self.within(i)[0], signal.SIGTERM)
        return self.ended()


@unittest.skipUnless(os.geteuid() == 0 and shutil.which("ip") and shutil.which("unshare"), "namespaces want root, ip and unshare")
class LiveHosts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        must_build_tap()

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="lockstep-hosts-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.addCleanup(self.remove_live)
        self.network = Network()
        self.network.__enter__()
        self.addCleanup(self.network.__exit__)

    def remove_live(self):
        """What a host that was killed has left in tmpfs."""
        for link in self.folder.glob("job/*/history/live"):
            shutil.rmtree(link.resolve(), ignore_errors=True)

    def job(self, what):
        job = Job(self.network, self.folder, what)
        for host in job.hosts:
            self.addCleanup(host.wait)
            self.addCleanup(host.kill)
        return job

    def training(self, seconds):
        (self.folder / "trains.py").write_text(TRAINS)
        job = self.job(f"{self.folder}/trains.py {seconds} {self.folder}")
        job.trains()
        return job

    def tell(self, what, seconds):
        print(f"\n{self.id().rsplit('.', 1)[-1]}: {what} after {seconds:.1f} s", file=sys.stderr)

    # A hang over hosts.

    def test_who_never_comes(self):
        job = self.job(f"{FIXTURES}/prefetch_thread.py bad")
        job.until(lambda: "DEADLOCK" in job.said(0), 120, "found")
        self.assertEqual(job.ended(), [1, 1], job.both())
        for i in range(2):
            said = job.said(i)
            self.assertRegex(said, r"DEADLOCK .* rank 1 has not entered all_reduce 0#\d+", job.both())
            self.assertIn("error[LS301]: rank 1 has not entered all_reduce", said)
            self.assertIn("a thread of rank 1 was ended by ValueError", said)
            self.assertIn("prefetch_thread.py:", said)
        self.assertIn("node2: rank 1: ", job.said(0))
        self.assertIn("node1: rank 0; node2: rank 1", job.said(0))

    def test_who_left_the_loop(self):
        job = self.job(f"{FIXTURES}/uneven_to_barrier.py bad")
        job.until(lambda: "DEADLOCK" in job.said(0), 120, "found")
        self.assertEqual(job.ended(), [1, 1], job.both())
        for i in range(2):
            self.assertIn("error[LS305]", job.said(i), job.both())

    def test_a_healthy_job(self):
        job = self.training(6)
        self.assertEqual(job.ended(), [0, 0], job.both())
        for i in range(2):
            for word in ("DEADLOCK", "SILENT", "STALLED"):
                self.assertNotIn(word, job.said(i))
        done = sh(PROGRAM, "check", str(self.folder / "job"))
        self.assertIn(" 0 fail, 0 undecided", done.stdout)

    # A host that dies.

    def killed(self, dead, left):
        job = self.training(600)
        job.hosts[dead].kill()  # And with it all of its processes.
        what = f"node{dead + 1} is gone, and with it rank {dead}"
        self.tell("a dead host is named", job.until(lambda: what in job.said(left), 15, "named"))
        job.until(lambda: job.hosts[left].poll() is not None, 60, "the other one ends")
        self.assertEqual(job.hosts[left].returncode, 1)
        self.assertIn(f"culprit    rank {dead}", job.said(left))

    def test_a_host_that_is_killed(self):
        self.killed(1, 0)

    def test_the_host_of_rank_0_is_killed(self):
        self.killed(0, 1)

    def test_a_host_that_is_stopped(self):
        job = self.training(25)
        all_of_it = job.within(1)
        for pid in all_of_it:
            os.kill(pid, signal.SIGSTOP)
        job.until(lambda: "SILENT" in job.said(0), 15, "told")
        time.sleep(8)
        for word in ("DEADLOCK", "is gone", "nothing gets from"):
            self.assertNotIn(word, job.both())
        for pid in all_of_it:
            os.kill(pid, signal.SIGCONT)
        self.assertEqual(job.ended(), [0, 0], job.both())

    def test_a_rank_that_is_killed(self):
        job = self.training(600)
        os.kill(job.rank(1), signal.SIGKILL)
        self.assertEqual(job.ended(), [1, 1], job.both())
        self.assertNotIn("is gone", job.both())
        for i in range(2):
            self.assertIn("error[LS101]: rank 1 was killed by SIGKILL", job.said(i), job.both())

    def test_a_lockstep_that_is_stopped(self):
        job = self.training(25)
        locksteps = [pid for pid in job.within(1) if pathlib.Path(f"/proc/{pid}/cmdline").read_text().startswith(f"{PROGRAM}\0")]
        for pid in locksteps:
            os.kill(pid, signal.SIGSTOP)
        job.until(lambda: "SILENT" in job.said(0), 15, "told")
        self.assertIn("node2 has said nothing for 3.", job.said(0))
        for pid in locksteps:
            os.kill(pid, signal.SIGCONT)
        self.assertEqual(job.ended(), [0, 0], job.both())
        self.assertNotIn("is gone", job.both())

    # A link that stops.

    def cable(self, state):
        self.network.must("ip", "-n", self.network.names[1], "link", "set", self.network.ends[1], state)

    def test_a_link_that_stops(self):
        job = self.training(600)
        self.cable("down")
        self.tell("a dead link is named", job.until(lambda: "nothing gets from node" in job.said(0), 60, "named"))
        self.assertIn("no rank is at fault", job.said(0))
        job.interrupt()
        self.assertNotIn("culprit    rank", job.both())
        done = sh(PROGRAM, "check", str(self.folder / "job"))
        self.assertRegex(done.stdout, r"error\[LS307\]: all ranks of 0 were inside all_reduce 0#\d+, and nothing gets from")
        self.assertIn("culprit    none", done.stdout)

    def test_a_rank_that_is_stopped(self):
        job = self.training(600)
        rank = job.rank(1)
        os.kill(rank, signal.SIGSTOP)
        self.tell("a stopped rank is named", job.until(lambda: "rank 1 is stopped by a signal" in job.said(0), 60, "named"))
        self.assertNotIn("nothing gets from", job.both())
        job.interrupt()

    def test_a_link_that_comes_back(self):
        job = self.training(20)
        self.cable("down")
        time.sleep(4)
        self.cable("up")
        self.assertEqual(job.ended(), [0, 0], job.both())
        self.assertNotIn("nothing gets from", job.both())


if __name__ == "__main__":
    unittest.main(verbosity=2)
