"""The suite over NCCL, one CUDA device a rank: needs two devices, else it is skipped by name."""

import glob
import json
import unittest

from program import ProgramTest

DEVICES = len(glob.glob("/dev/nvidia[0-9]*"))


class Gpu(ProgramTest):
    @unittest.skipIf(DEVICES < 2, f"needs 2 GPUs, have {DEVICES}")
    def test_what_passes_on_the_cpu_passes_there(self) -> None:
        done = self.lockstep("suite", "--device", "cuda", "-n", "2", "--run-dir", "run")
        self.assertEqual((done.status, done.err), (0, ""), done)
        report = json.loads((self.directory / "run" / "report.json").read_text())
        self.assertEqual({case["device"] for case in report["cases"]}, {"cuda"})

    @unittest.skipIf(DEVICES > 0, "needs a machine without a GPU")
    def test_without_a_device_the_case_is_skipped_by_name(self) -> None:
        done = self.lockstep("suite", "--device", "cuda", "--scenario", "clean-exit", "-n", "2")
        self.assertEqual(done.status, 77, done)
        self.assertIn("needs CUDA device 0, have 0", done.out)


if __name__ == "__main__":
    unittest.main()
