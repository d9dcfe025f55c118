"""A host for a test: a set of namespaces, with its network, name, processes, mounts, and a clock that is hours ahead."""

import os
import pathlib
import subprocess
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
exec {program} run --run-dir {run} -- {python} -m torch.distributed.run --nnodes 2 --nproc-per-node 1 \
  --node-rank {rank} --master-addr {first} --master-port 29549 {what}
"""


def sh(*words):
    return subprocess.run(words, capture_output=True, text=True, check=False)


def must_build_tap():
    built = sh(PROGRAM, "tap", "build", "--python", PYTHON)
    assert built.returncode == 0, built.stderr


class Network:
    """Two network namespaces and a cable."""

    def __init__(self):
        self.names = [f"lockstep-{os.getpid()}-{side}" for side in "ab"]
        self.ends = [f"ls{os.getpid() % 10**8}{side}" for side in "ab"]

    def __enter__(self):
        for name in self.names:
            self.must("ip", "netns", "add", name)
        self.must("ip", "link", "add", self.ends[0], "netns", self.names[0], "type", "veth", "peer", "name",
                  self.ends[1], "netns", self.names[1])
        for name, end, address in zip(self.names, self.ends, ADDRESSES):
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

    def start(self, rank, folder, what, run=None):
        """The lockstep of one host; `run`: its run directory."""
        name = f"node{rank + 1}"
        folder.mkdir()
        (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(
            f"{address} node{i + 1}\n" for i, address in enumerate(ADDRESSES)))
        (folder / "boot_id").write_text(f"{rank}0000000-0000-4000-8000-000000000000\n")
        self.must(*self.words(rank, BECOMES.format(folder=folder, name=name)))  # A container may not let us.
        script = HOST.format(folder=folder, run=run or folder / "run", name=name, program=PROGRAM, python=PYTHON, rank=rank,
                             first=ADDRESSES[0], what=what)
        with open(folder / "out", "w", encoding="utf-8") as out:
            return subprocess.Popen(self.words(rank, script), stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
