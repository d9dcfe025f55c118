"""A signal to the whole process group, as a terminal sends it: the ranks of a launcher get it, too, and react to it.
What they are judged by is what they did before."""

import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

import judged
import table

STEPS = """
import sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for step in range(1_000_000):
    dist.all_reduce(torch.ones(100))
    if step == 200 and dist.get_rank() == 0:
        print("it trains", file=sys.stderr, flush=True)
"""


class Interrupted(unittest.TestCase):
    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory(prefix="lockstep-interrupted-")
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)

    def run_until(self, words: str, row: table.Row) -> tuple:
        """Status, report and stderr of a run whose group gets SIGTERM once it says `words`."""
        process = subprocess.Popen(
            judged.command(row, 2, self.scratch / "run"), cwd=judged.SOURCE, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
            env={**os.environ, "TMPDIR": str(self.scratch)},
        )
        said = ""
        for line in process.stderr:
            said += line
            if words in line:
                os.killpg(process.pid, signal.SIGTERM)
                break
        said += process.communicate(timeout=judged.DEADLINE_S)[1]
        return process.returncode, json.loads((self.scratch / "run" / "report.json").read_text()), said

    def run_for(self, seconds: float, row: table.Row) -> tuple:
        """The same, of a run of which lockstep alone gets SIGTERM."""
        process = subprocess.Popen(
            judged.command(row, 2, self.scratch / "run"), cwd=judged.SOURCE, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace",
            env={**os.environ, "TMPDIR": str(self.scratch)},
        )
        time.sleep(seconds)
        process.terminate()
        said = process.communicate(timeout=judged.DEADLINE_S)[1]
        return process.returncode, json.loads((self.scratch / "run" / "report.json").read_text()), said

    def test_a_stalled_rank_is_judged_by_what_it_did_before(self) -> None:
        row = table.Row("loader.py", "bad --worker=asleep", launcher=table.ELASTIC, options=("--stall-limit", "90"))
        status, report, said = self.run_until("STALLED", row)
        at = f"loader.py:{table.line_of('loader.py', 'loader')}"
        self.assertEqual((status, [(f["code"], f["culprits"]) for f in report["findings"]]), (1, [("LS303", [1])]), said)
        self.assertIn(f"rank 1: waits for a data loader worker at {at}", judged.evidence_of(report["findings"][0]), said)
        self.assertRegex(said, rf"rank 1: after .*, now at {at}\n")

    def test_who_was_never_started_is_told_after_a_long_wait(self) -> None:
        status, report, said = self.run_for(24, table.Row("numbered.py", "few", launcher=table.ITSELF))
        self.assertEqual((status, [(f["code"], f["culprits"]) for f in report["findings"]]), (1, [("LS107", [])]), said)
        self.assertRegex(report["findings"][0]["headline"], "^rank 2 never came to init_process_group")
        at = f"numbered.py:{table.line_of('numbered.py', 'join')}"
        self.assertRegex(said, f"ranks 0,1: in init_process_group at {at} for")

    def test_of_a_short_wait_nothing_is_said(self) -> None:
        status, report, said = self.run_for(8, table.Row("numbered.py", "few", launcher=table.ITSELF))
        self.assertEqual((status, report["findings"]), (130, []), said)

    def test_of_training_that_goes_on_nothing_is_said(self) -> None:
        (self.scratch / "steps.py").write_text(STEPS)
        row = table.Row(str(self.scratch / "steps.py"), "", launcher=table.ELASTIC, options=("--stall-limit", "90"))
        status, report, said = self.run_until("it trains", row)
        self.assertEqual((status, report["findings"]), (130, []), said)


unittest.main()
