"""Jobs of mpirun and srun, where these are installed: under one lockstep, and with one for each task, judged together."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

PROGRAM, PYTHON = os.environ["LOCKSTEP_PROGRAM"], os.environ["LOCKSTEP_PYTHON"]
TRAINS = pathlib.Path(__file__).parents[2] / "fixtures/programs/by_launcher.py"
SLURM = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdSpoolDir={folder}/spool
StateSaveLocation={folder}/state
SlurmUser=root
SlurmdLogFile={folder}/slurmd.log
SlurmctldLogFile={folder}/slurmctld.log
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=1000 State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Jobs:
    """By a launcher, which `words` start: of three ranks."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="lockstep-launchers-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
        assert subprocess.run([PROGRAM, "tap", "build", "--python", PYTHON], check=False).returncode == 0

    def sh(self, *words):
        return subprocess.run(words, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=200, check=False)

    def of_one(self, kind):
        return self.sh(PROGRAM, "run", "--", *self.words, PYTHON, TRAINS, kind)

    def of_each(self, kind):
        each = f'exec {PROGRAM} run --time-limit 40 --run-dir each/${self.task} -- {PYTHON} {TRAINS} {kind}'
        self.sh(*self.words, "sh", "-c", each)
        return self.sh(PROGRAM, "check", "each")

    def test_under_one_lockstep(self):
        done = self.of_one("good")
        self.assertIn(" 0 fail, 0 undecided", done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.of_one("bad")
        self.assertIn("error[LS305]: rank 2 left the loop at by_launcher.py:", done.stderr)

    def test_one_lockstep_for_each_task(self):
        done = self.of_each("good")
        self.assertIn("3 ranks on 1 host", done.stdout, done.stderr)
        self.assertIn(" 0 fail, 0 undecided", done.stdout)
        shutil.rmtree(self.folder / "each")
        self.environment["MASTER_PORT"] = str(free_port())
        done = self.of_each("bad")
        self.assertIn("error[LS305]: rank 2 left the loop at by_launcher.py:", done.stdout, done.stderr)


@unittest.skipUnless(shutil.which("mpirun"), "no mpirun")
class OpenMpi(Jobs, unittest.TestCase):
    words = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "3")
    task = "OMPI_COMM_WORLD_RANK"


@unittest.skipUnless(os.geteuid() == 0 and all(map(shutil.which, ("srun", "slurmctld", "slurmd", "munged"))), "no Slurm, or not root")
class Slurm(Jobs, unittest.TestCase):
    words = ("srun", "-n", "3", "--overcommit")
    task = "SLURM_PROCID"

    def setUp(self):
        super().setUp()
        folder, host = self.folder, socket.gethostname().split(".")[0]
        for name in ("spool", "state"):
            (folder / name).mkdir()
        key = folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        (folder / "slurm.conf").write_text(SLURM.format(folder=folder, host=host, ports=(free_port(), free_port()), cpus=os.cpu_count()))
        self.environment["SLURM_CONF"] = str(folder / "slurm.conf")
        self.addCleanup(self.end)
        self.sh("munged", "--force", *(f"--{what}={folder}/munge.{end}" for what, end in (
            ("key-file", "key"), ("socket", "sock"), ("log-file", "log"), ("seed-file", "seed"))), f"--pid-file={folder}/munged.pid")
        self.sh("slurmctld", "-c", "-f", folder / "slurm.conf")
        self.sh("slurmd", "-f", folder / "slurm.conf")
        end = time.monotonic() + 20
        while "idle" not in self.sh("sinfo").stdout and time.monotonic() < end:
            time.sleep(0.5)

    def end(self):
        for name in ("slurmd", "slurmctld", "munged"):
            file = self.folder / f"{name}.pid"
            if file.exists():
                os.kill(int(file.read_text()), signal.SIGTERM)
        end = time.monotonic() + 10
        while any((self.folder / f"{name}.pid").exists() for name in ("slurmd", "slurmctld")) and time.monotonic() < end:
            time.sleep(0.2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
