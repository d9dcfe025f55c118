"""`lockstep diagnose` over jobs that hang and that it did not start: the right rank, the right line, and nothing about
the job changed. Where the cause can be taken away, the job goes on to its end."""

import pathlib
import time
import unittest

from job import JobTest


class HungJobs(JobTest):
    def test_ddp_backward_and_a_rank_that_has_left_the_loop(self) -> None:
        self.start(3, "uneven_to_barrier.py", "bad")
        diagnosis = self.diagnose_when_it_hangs()
        self.assert_named(diagnosis, "uneven_to_barrier.py", 1, "barrier")
        for rank in (0, 2):
            self.assert_at(diagnosis, "uneven_to_barrier.py", rank, "backward")
        self.assertIn("DDP", diagnosis.ranks[0]["doing"])
        self.assert_untouched()

    def test_ddp_backward_that_one_rank_skips(self) -> None:
        self.start(3, "skipped_batch.py", "bad")
        diagnosis = self.diagnose_when_it_hangs()
        self.assert_named(diagnosis, "skipped_batch.py", 1, "forward")
        self.assert_at(diagnosis, "skipped_batch.py", 0, "backward")
        self.assert_untouched()

    def test_sharded_training(self) -> None:
        self.start(3, "sharded.py", str(self.pipe))
        diagnosis = self.diagnose_when_it_hangs()
        self.assert_named(diagnosis, "sharded.py", 1, "read")
        self.assert_at(diagnosis, "sharded.py", 2, "forward")
        self.assertIn("reads from or writes to a pipe", diagnosis.ranks[1]["doing"])
        self.assertIn("FSDP", diagnosis.ranks[0]["doing"])
        self.let_go()
        self.assert_goes_on()

    def test_a_key_in_the_store(self) -> None:
        self.start(3, "waits_for_key.py")
        diagnosis = self.diagnose_when_it_hangs()
        self.assert_named(diagnosis, "waits_for_key.py", 1, "get")
        self.assertEqual(diagnosis.ranks[1]["state"], "store")
        self.assert_at(diagnosis, "waits_for_key.py", 0, "sum")
        self.assert_untouched()

    def test_a_worker_of_a_data_loader(self) -> None:
        self.start(3, "stuck_worker.py", str(self.pipe))
        diagnosis = self.diagnose_when_it_hangs()
        self.assert_named(diagnosis, "stuck_worker.py", 1, "loader")
        self.assertIn("data loader worker", diagnosis.ranks[1]["doing"])
        self.assertIn("stuck_worker.py", " ".join(diagnosis.ranks[1]["more"]))  # Where the worker is.
        self.let_go()
        self.assert_goes_on()

    def test_messages_in_a_circle(self) -> None:
        self.start(3, "neighbours.py", "bad")
        diagnosis = self.diagnose_when_it_hangs()
        self.assertEqual(diagnosis.finding["code"], "LS302", diagnosis.said())
        for rank in range(3):
            self.assert_at(diagnosis, "neighbours.py", rank, "send")
            self.assertEqual(diagnosis.ranks[rank]["peer"], (rank + 1) % 3)
        self.assert_untouched()

    def test_a_rank_that_does_not_exit(self) -> None:
        self.start(2, "metrics_thread.py", "bad")
        diagnosis = self.diagnose_when_it_hangs()
        self.assert_named(diagnosis, "metrics_thread.py", 1, "thread")
        self.assertEqual(diagnosis.finding["code"], "LS103", diagnosis.said())
        self.assert_untouched()

    def test_a_group_that_one_rank_makes(self) -> None:
        self.start(3, "evaluation_group.py", "bad")
        diagnosis = self.diagnose_when_it_hangs()
        self.assert_named(diagnosis, "evaluation_group.py", 0, "group")
        self.assertEqual(diagnosis.ranks[0]["state"], "new-group")
        self.assert_at(diagnosis, "evaluation_group.py", 1, "sum")
        self.assert_untouched()

    def test_a_rank_that_sleeps_before_a_collective_of_eight(self) -> None:
        self.start(8, "sleeps.py", "60")
        diagnosis = self.diagnose_when_it_hangs()
        self.assert_named(diagnosis, "sleeps.py", 1, "sleep")
        self.assertEqual(diagnosis.finding["code"], "LS303", diagnosis.said())
        self.assertEqual(diagnosis.finding["affected"], [0, 2, 3, 4, 5, 6, 7])
        self.assert_at(diagnosis, "sleeps.py", 7, "sum")
        self.assert_goes_on()


class HealthyJob(JobTest):
    def test_nobody_is_accused(self) -> None:
        over = self.directory / "over"
        self.start(3, "healthy.py", str(over))
        deadline = time.monotonic() + 150
        while not pathlib.Path(f"{over}.begun").exists():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.2)
        for _ in range(12):
            diagnosis = self.diagnose()
            self.assertEqual(diagnosis.status, 0, diagnosis.said())
            self.assertEqual(diagnosis.document["findings"], [])
        over.touch()
        self.assert_goes_on()


if __name__ == "__main__":
    unittest.main(verbosity=2)
