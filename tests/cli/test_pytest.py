"""The pytest plugin, as a project would use it: a test that passes on all ranks, one that fails on one, one that hangs,
one that leaves a process, and what pytest itself offers around them."""

import os
import pathlib
import re
import subprocess
import textwrap
import unittest

from program import DEADLINE_S, PROGRAM, ProgramTest, environment

PYTHON = os.environ["LOCKSTEP_PYTHON"]
PLUGIN = pathlib.Path(__file__).resolve().parents[2] / "harness" / "pytest"
HEAD = """
    import os, subprocess, sys, time
    import pytest
    RANK = int(os.environ.get("RANK", 0))
"""
TORCH = """
    import torch
    import torch.distributed as dist

    @pytest.fixture
    def group():
        dist.init_process_group("gloo")
        yield
        dist.destroy_process_group()
"""


class PytestTest(ProgramTest):
    def pytest(self, tests: str, *arguments: str, head: str = HEAD) -> subprocess.CompletedProcess:
        (self.directory / "test_it.py").write_text(textwrap.dedent(head) + textwrap.dedent(tests))
        command = [PYTHON, "-B", "-m", "pytest", "-p", "pytest_lockstep", "-p", "no:cacheprovider", *arguments]
        return subprocess.run(command, cwd=self.directory, text=True, capture_output=True, timeout=DEADLINE_S,
                              env=environment(PYTHONPATH=str(PLUGIN), LOCKSTEP_PROGRAM=PROGRAM))

    def counts(self, done: subprocess.CompletedProcess, **expected: int) -> None:
        found = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|xfailed|error)", done.stdout.splitlines()[-1])}
        self.assertEqual(found, expected, done.stdout + done.stderr)

    def test_what_pytest_offers_is_there_on_each_rank(self) -> None:
        done = self.pytest("""
            @pytest.fixture(params=["a", "b"])
            def letter(request):
                return request.param

            def test_plain():
                assert "RANK" not in os.environ

            @pytest.mark.world_size([1, 2])
            def test_parametrized(letter, tmp_path):
                assert letter in "ab" and tmp_path.exists() and RANK < int(os.environ["WORLD_SIZE"])

            @pytest.mark.world_size(2)
            @pytest.mark.skip(reason="not here")
            def test_skipped():
                assert False

            @pytest.mark.world_size(2)
            @pytest.mark.xfail(reason="known")
            def test_known():
                assert False
        """)
        self.counts(done, passed=5, skipped=1, xfailed=1)
        self.assertEqual(done.returncode, 0)

    def test_the_assertion_of_the_rank_that_fails_is_shown(self) -> None:
        done = self.pytest("""
            @pytest.mark.world_size(2)
            def test_one():
                print(f"here is rank {RANK}")
                assert RANK + 1 == 1
        """)
        self.counts(done, failed=1)
        self.assertIn("rank 1 of 2 failed", done.stdout)
        self.assertIn("assert (1 + 1) == 1", done.stdout)
        self.assertEqual(done.stdout.count("here is rank 1"), 1)

    def test_a_rank_that_skips_alone_is_a_failure(self) -> None:
        done = self.pytest("""
            @pytest.mark.world_size(2)
            def test_one():
                if RANK == 1:
                    pytest.skip("only rank 0 has it")
        """)
        self.counts(done, failed=1)

    def test_the_limit_ends_a_test_and_says_where_it_was(self) -> None:
        done = self.pytest("""
            @pytest.mark.world_size(2, timeout=4)
            def test_sleeps():
                time.sleep(600)
        """)
        self.counts(done, failed=1)
        self.assertIn("--time-limit 4 s", done.stdout)

    def test_a_process_that_stays_fails_the_test(self) -> None:
        done = self.pytest("""
            @pytest.mark.world_size(2)
            def test_leaks():
                if RANK == 1:
                    subprocess.Popen(["sleep", "600"])
        """)
        self.counts(done, failed=1)
        self.assertIn("LS104", done.stdout)

    def test_a_hang_is_named_with_its_lines(self) -> None:
        done = self.pytest("""
            @pytest.mark.world_size(2)
            def test_sums(group):
                x = torch.ones(2)
                dist.all_reduce(x)
                assert x.tolist() == [2, 2]

            @pytest.mark.world_size(2)
            def test_hangs(group):
                if RANK == 0:
                    dist.all_reduce(torch.ones(2))
                else:
                    dist.barrier()
        """, "-n", "2", head=HEAD + TORCH)
        self.counts(done, passed=1, failed=1)
        lines = (self.directory / "test_it.py").read_text().splitlines()
        for call in ("dist.all_reduce(torch.ones(2))", "dist.barrier()"):
            self.assertIn(f"test_it.py:{[line.strip() for line in lines].index(call) + 1}", done.stdout)
        self.assertIn("LS201", done.stdout)

    def test_what_is_no_number_of_ranks_is_refused(self) -> None:
        done = self.pytest("""
            @pytest.mark.world_size("two")
            def test_it():
                pass
        """)
        self.assertIn("world_size('two'): need a number of ranks", done.stdout + done.stderr)
        self.assertNotEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main()
