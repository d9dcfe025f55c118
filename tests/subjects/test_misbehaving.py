"""Subjects that do what they should not: a clear verdict, or status 125 with have, need and next step, and no process left."""

import os
import unittest

from suite import FIXTURES, SubjectTest, processes_with

WRAPPER = """
import os, sys, time
import torch.distributed as dist
from torch import nn

class Mine(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for p in module.parameters():
            dist.broadcast(p.data, 0)
    def forward(self, x):
        {forward}
        return self.module(x)
    def sync_gradients(self):
        for p in self.module.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
"""
CASE = ("--scenario", "clean-exit", "-n", "2")


class Misbehaving(SubjectTest):
    def run_with(self, forward, *arguments):
        mark = f"LOCKSTEP_TEST_MARK_{os.getpid()}_{id(self)}"
        subject = self.module(WRAPPER.format(forward=forward))
        done, report = self.suite(f"{subject}:Mine", *(arguments or CASE), LOCKSTEP_TEST_MARK=mark)
        self.assertEqual(processes_with(mark), [], done.stdout)
        return done, report

    def test_well_behaved(self):
        done, _report = self.run_with("pass")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_raises_at_a_line(self):
        done, _report = self.run_with("raise ValueError('no such thing')")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("ValueError: no such thing", done.stdout)
        self.assertIn("mine.py:13", done.stdout)
        repeat = " ".join(done.stdout.replace("\\\n", " ").split())
        self.assertIn("lockstep suite --subject ./mine.py:Mine --python", repeat)

    def test_ends_the_process(self):
        done, _report = self.run_with("os._exit(7) if dist.get_rank() == 1 else None")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("LS101", done.stdout)

    def test_waits_for_ever(self):
        done, _report = self.run_with("dist.barrier() if dist.get_rank() == 1 else None")
        self.assertEqual(done.returncode, 1, done.stdout)

    def test_garbage_on_the_conversation(self):
        garbage = "[os.write(int(f), b'garbage\\n') for f in os.listdir('/proc/self/fd') if int(f) > 2 and 'socket' in os.readlink('/proc/self/fd/' + f) and self._is_pair(int(f))]"
        subject = WRAPPER.format(forward=garbage) + """
    def _is_pair(self, fd):
        import socket
        s = socket.socket(fileno=os.dup(fd))
        try:
            return s.family == socket.AF_UNIX and s.type == socket.SOCK_STREAM
        finally:
            s.close()
"""
        self.module(subject)
        done, _report = self.suite("./mine.py:Mine", *CASE)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("garbage", done.stdout)

    def test_child_that_comes_back(self):
        done, _report = self.run_with("os.fork()")
        self.assertIn(done.returncode, (0, 1, 2), done.stdout)

    def test_other_stdout(self):
        done, _report = self.run_with("sys.stdout = open(os.devnull, 'w'); print('x')")
        self.assertEqual(done.returncode, 0, done.stdout)


class Refused(SubjectTest):
    def assert_refused(self, done, *words):
        self.assertEqual(done.returncode, 125, done.stdout + done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def test_names_that_lead_nowhere(self):
        done, _ = self.suite("no_such_module:Name")
        self.assert_refused(done, "no_such_module", "need")
        done, _ = self.suite("./nothing_here.py:Name")
        self.assert_refused(done, "nothing_here.py")
        self.module("class Other: pass\n")
        done, _ = self.suite("./mine.py:Name")
        self.assert_refused(done, "has no Name", "Other")
        done, _ = self.suite("torch.nn")
        self.assert_refused(done, "MODULE:NAME")

    def test_what_fits_no_adapter(self):
        self.module("class Mine:\n    def __init__(self, module, secret):\n        pass\n    def forward(self, x):\n        pass\n")
        done, _ = self.suite("./mine.py:Mine")
        self.assert_refused(done, "secret", "need", "class Adapter")
        done, _ = self.suite("./mine.py:Mine", "--as", "sampler")
        self.assert_refused(done, "__iter__")

    def test_gradients_that_are_sent_nobody_knows_when(self):
        self.module(
            "import torch.distributed as dist\nfrom torch import nn\nclass Mine(nn.Module):\n    def __init__(self, module):\n"
            "        super().__init__()\n        self.module = module\n    def forward(self, x):\n        return self.module(x)\n"
            "    def share(self, batch):\n        for p in self.parameters():\n            dist.all_reduce(p.grad)\n"
        )
        done, _ = self.suite("./mine.py:Mine")
        self.assert_refused(done, "share(batch)", "need a method to be called after backward", "class Adapter")

    def test_samplers_that_no_dataset_of_ours_fits(self):
        head = "class Mine:\n    def __init__(self, dataset, num_replicas{rank}):\n        self.n = len(dataset)\n"
        body = "    def __iter__(self):\n        return iter({items})\n"
        self.module(head.format(rank=", rank") + body.format(items="range(self.n)") + "        pass\n")
        done, _ = self.suite("./mine.py:Mine", "--as", "sampler", "--list")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.module(head.format(rank=", rank") + "        self.n = len(dataset.targets)\n" + body.format(items="[]"))
        done, _ = self.suite("./mine.py:Mine", "--as", "sampler")
        self.assert_refused(done, "asks its dataset for targets", "class Adapter")
        self.module(head.format(rank="") + body.format(items="range(self.n)"))
        done, _ = self.suite("./mine.py:Mine", "--as", "sampler")
        self.assert_refused(done, "says which one it is", "how many there are alone")

    def test_activation_that_nothing_leaves_out(self):
        done, _ = self.suite(f"{FIXTURES}/right_words.py:AlwaysActivated", "--as", "sync_bn")
        self.assert_refused(done, "an activation", "need the normalisation alone", "class Adapter")

    def test_module_that_ends_its_process(self):
        self.module("import os\nos._exit(3)\n")
        done, _ = self.suite("./mine.py:Mine")
        self.assert_refused(done, "ends the process that loads it")

    def test_interpreter_without_torch(self):
        done, _ = self.suite("torch", python="/no/such/python")
        self.assert_refused(done, "--python")


if __name__ == "__main__":
    unittest.main()
