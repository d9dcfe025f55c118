"""The suite over NCCL, one CUDA device a rank, and programs that use GPUs: what needs them is skipped by name."""

import glob
import json
import os
import pathlib
import tempfile
import unittest

from program import ProgramTest

DEVICES = len(glob.glob("/dev/nvidia[0-9]*"))

KEEPS_MEMORY = """
import os, subprocess, sys
import torch.distributed as dist
holder = "import torch, time; torch.ones(1, device='cuda'); print('has it', flush=True); time.sleep(600)"
dist.init_process_group("gloo")
if dist.get_rank() == 1:
    left = subprocess.Popen([sys.executable, "-c", holder], stdout=subprocess.PIPE, start_new_session=True)
    left.stdout.readline()
dist.barrier()
dist.destroy_process_group()
os._exit(0)
"""

UNEVEN = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4).cuda())
for _ in range(3 + dist.get_rank()):
    model(torch.ones(2, 4, device="cuda")).sum().backward()
dist.barrier()
"""

NCCL = """
import os, sys
rank = int(os.environ["RANK"])
# NCCL takes the ranks for ones of two hosts: of one host each needs a GPU of its own.
os.environ.update(NCCL_HOSTID=str(rank), NCCL_SOCKET_IFNAME="lo")
import torch
import torch.distributed as dist
torch.cuda.set_device(0)
dist.init_process_group("nccl")
layers = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)).cuda()
model = torch.nn.parallel.DistributedDataParallel(layers, device_ids=[0])
for step in range(8):
    loss = model(torch.randn(8, 16, device="cuda")).pow(2).mean()
    if rank == 1 and step == 5 and sys.argv[1] == "skips":
        continue
    loss.backward()
    loss.item()
dist.barrier()
dist.destroy_process_group()
"""

ON_ONE_DEVICE = """
import os, sys
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
if sys.argv[1] == "each its own":
    torch.cuda.set_device(dist.get_rank())
dist.all_reduce(torch.ones(4, device="cuda"))
dist.destroy_process_group()
"""


class Gpu(ProgramTest):
    @unittest.skipIf(DEVICES < 2, f"needs 2 GPUs, have {DEVICES}")
    def test_what_passes_on_the_cpu_passes_there(self) -> None:
        done = self.lockstep("suite", "--device", "cuda", "-n", "2", "--run-dir", "run")
        self.assertEqual((done.status, done.err), (0, ""), done)
        report = json.loads((self.directory / "run" / "report.json").read_text())
        self.assertEqual({case["device"] for case in report["cases"]}, {"cuda"})

    def findings_of(self, program: str, *arguments: str, options: tuple = ()) -> list:
        (self.directory / "program.py").write_text(program)
        run = tempfile.mkdtemp(dir=self.directory)
        self.lockstep("run", "-n", "2", *options, "--run-dir", run, "--", os.environ["LOCKSTEP_PYTHON"], "program.py",
                      *arguments)
        return json.loads(pathlib.Path(run, "report.json").read_text())["findings"]

    @unittest.skipIf(DEVICES < 1, f"needs 1 GPU, have {DEVICES}")
    def test_memory_of_a_gpu_that_a_process_keeps_is_told(self) -> None:
        found = self.findings_of(KEEPS_MEMORY)
        self.assertEqual([(finding["code"], finding["also"]) for finding in found], [("LS104", ["LS106"])], found)
        self.assertIn("/dev/nvidia", found[0]["evidence"][0]["text"])

    @unittest.skipIf(DEVICES < 1, f"needs 1 GPU, have {DEVICES}")
    def test_what_the_thread_of_a_gpu_reduces_has_the_line_of_backward(self) -> None:
        found = self.findings_of(UNEVEN)
        self.assertEqual([(finding["code"], finding["culprits"]) for finding in found], [("LS305", [0])], found)
        self.assertEqual([site["line"] for site in found[0]["sites"]], [8, 7])

    @unittest.skipIf(DEVICES < 1, f"needs 1 GPU, have {DEVICES}")
    def test_over_nccl_a_skipped_step_is_told_at_the_stall_limit(self) -> None:
        found = self.findings_of(NCCL, "skips", options=("--stall-limit", "15"))
        self.assertEqual([(finding["code"], finding["culprits"]) for finding in found], [("LS305", [1])], found)
        self.assertEqual([site["line"] for site in found[0]["sites"]], [18, 16])
        self.assertEqual(self.findings_of(NCCL, "whole"), [])

    @unittest.skipIf(DEVICES < 2, f"needs 2 GPUs, have {DEVICES}")
    def test_ranks_that_never_chose_a_gpu_are_told(self) -> None:
        found = self.findings_of(ON_ONE_DEVICE, "no choice")
        self.assertEqual([finding["code"] for finding in found], ["LS110"], found)
        self.assertEqual(self.findings_of(ON_ONE_DEVICE, "each its own"), [])

    @unittest.skipIf(DEVICES > 0, "needs a machine without a GPU")
    def test_without_a_device_the_case_is_skipped_by_name(self) -> None:
        done = self.lockstep("suite", "--device", "cuda", "--scenario", "clean-exit", "-n", "2")
        self.assertEqual(done.status, 77, done)
        self.assertIn("needs CUDA device 0, have 0", done.out)


if __name__ == "__main__":
    unittest.main()
