"""One job on two hosts, each with its own lockstep: `lockstep check` of both names what neither can see alone.

A host is a set of namespaces: network, name, processes, mounts, and a clock that is hours ahead of the other's.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM, PYTHON = os.environ["LOCKSTEP_PROGRAM"], os.environ["LOCKSTEP_PYTHON"]
FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures/programs"
ADDRESSES = ("10.9.49.1", "10.9.49.2")
AHEAD_S = 36000
OWN = ("--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--time", "--monotonic")
BECOMES = """
set -e
mount --bind {folder}/boot_id /proc/sys/kernel/random/boot_id
mount --bind {folder}/hosts /etc/hosts
hostname {name}
"""
HOST = BECOMES + """
exec {program} run --run-dir {folder}/run -- {python} -m torch.distributed.run --nnodes 2 --nproc-per-node 1 \
  --node-rank {rank} --master-addr {first} --master-port 29549 {what}
"""


def sh(*words):
    return subprocess.run(words, capture_output=True, text=True, check=False)


class Network:
    """Two network namespaces and a cable."""

    def __init__(self):
        self.names = [f"lockstep-{os.getpid()}-{side}" for side in "ab"]

    def __enter__(self):
        ends = [f"ls{os.getpid() % 10**8}{side}" for side in "ab"]
        for name in self.names:
            self.must("ip", "netns", "add", name)
        self.must("ip", "link", "add", ends[0], "netns", self.names[0], "type", "veth", "peer", "name", ends[1], "netns",
                  self.names[1])
        for name, end, address in zip(self.names, ends, ADDRESSES):
            self.must("ip", "-n", name, "address", "add", f"{address}/24", "dev", end)
            for link in (end, "lo"):
                self.must("ip", "-n", name, "link", "set", link, "up")
        return self

    def __exit__(self, *_):
        for name in self.names:
            sh("ip", "netns", "delete", name)

    def must(self, *words):
        done = sh(*words)
        if done.returncode != 0:
            self.__exit__()
            raise unittest.SkipTest(f"no namespaces here: {words[0]} ended with {done.returncode}: {done.stderr.strip()}")

    def words(self, rank, script):
        return ["ip", "netns", "exec", self.names[rank], "unshare", *OWN, str(rank * AHEAD_S), "sh", "-c", script]

    def start(self, rank, folder, what):
        name = f"node{rank + 1}"
        folder.mkdir()
        (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(
            f"{address} node{i + 1}\n" for i, address in enumerate(ADDRESSES)))
        (folder / "boot_id").write_text(f"{rank}0000000-0000-4000-8000-000000000000\n")
        self.must(*self.words(rank, BECOMES.format(folder=folder, name=name)))  # A container may not let us.
        script = HOST.format(folder=folder, name=name, program=PROGRAM, python=PYTHON, rank=rank, first=ADDRESSES[0], what=what)
        with open(folder / "out", "w", encoding="utf-8") as out:
            return subprocess.Popen(self.words(rank, script), stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)


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
        built = sh(PROGRAM, "tap", "build", "--python", PYTHON)
        assert built.returncode == 0, built.stderr

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
