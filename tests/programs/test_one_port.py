"""Two jobs of two users that meet at one port. Who came first has it; whoever of the other job comes before the second
rank of the first job is taken for that."""

import json
import os
import pathlib
import socket
import subprocess
import tempfile
import unittest

import judged
import table


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


class OnePort(unittest.TestCase):
    def run_both(self, ports: tuple) -> list:
        """Status, report and stderr of two jobs: the second rank of the first is late, and so is the second job, less."""
        with tempfile.TemporaryDirectory(prefix="lockstep-port-") as scratch:
            runs = [pathlib.Path(scratch, name) for name in "ab"]
            begun = []
            for run, port, late in zip(runs, ports, ("10", "0")):
                row = table.Row("one_port.py", f"{port} {late}", launcher=table.ITSELF, options=("--stall-limit", "25"))
                command = judged.command(row, 2, run)
                if begun:
                    command = ["sh", "-c", 'sleep 3; exec "$@"', "sh", *command]
                begun.append(subprocess.Popen(command, cwd=judged.SOURCE, stdin=subprocess.DEVNULL,
                                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                              errors="replace", env={**os.environ, "TMPDIR": scratch}))
            said = [process.communicate(timeout=judged.DEADLINE_S)[1] for process in begun]
            return [(process.returncode, json.loads((run / "report.json").read_text()), text)
                    for process, run, text in zip(begun, runs, said)]

    def test_the_peer_of_another_job_is_told(self) -> None:
        (status, first, said), (other_status, other, other_said) = self.run_both((free_port(),) * 2)
        self.assertEqual((status, [(f["code"], f["culprits"]) for f in first["findings"]]), (1, [("LS107", [])]), said)
        self.assertRegex(first["findings"][0]["headline"],
                         r"^the peer of rank 0 is no process of this job: pid \d+ \(.*one_port.py rank\)$")
        self.assertEqual((other_status, [(f["code"], f["culprits"]) for f in other["findings"]]),
                         (1, [("LS101", [0])]), other_said)
        self.assertIn("EADDRINUSE", other["findings"][0]["headline"])
        self.assertIn("the peer of rank 1 is no process of this job", "\n".join(judged.evidence_of(other["findings"][0])))

    def test_two_jobs_at_two_ports_are_none_of_each_other(self) -> None:
        for status, report, said in self.run_both((free_port(), free_port())):
            self.assertEqual((status, report["findings"]), (0, []), said)


unittest.main()
