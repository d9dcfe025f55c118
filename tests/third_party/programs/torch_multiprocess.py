"""Tests on PyTorch's own MultiProcessTestCase: ten that pass, and three that its decorators skip by statuses of their ranks."""

import os
import unittest

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal import common_distributed, common_utils

torch.set_num_threads(1)


class TwoRanks(common_distributed.MultiProcessTestCase):
    @property
    def world_size(self) -> int:
        return 2

    def setUp(self) -> None:
        super().setUp()
        self._spawn_processes()

    def tearDown(self) -> None:
        super().tearDown()
        if os.path.exists(self.file_name):
            os.remove(self.file_name)

    def join_group(self) -> torch.Tensor:
        dist.init_process_group("gloo", store=dist.FileStore(self.file_name, self.world_size), rank=self.rank,
                                world_size=self.world_size)
        return torch.full((4,), float(self.rank + 1))


class Healthy(TwoRanks):
    def test_all_reduce(self) -> None:
        x = self.join_group()
        dist.all_reduce(x)
        self.assertEqual(x, torch.full((4,), 3.0))

    def test_broadcast(self) -> None:
        x = self.join_group()
        dist.broadcast(x, src=1)
        self.assertEqual(x, torch.full((4,), 2.0))

    def test_all_gather(self) -> None:
        x = self.join_group()
        gathered = [torch.empty(4) for _ in range(2)]
        dist.all_gather(gathered, x)
        self.assertEqual(gathered, [torch.full((4,), 1.0), torch.full((4,), 2.0)])

    def test_reduce_scatter(self) -> None:
        x, part = self.join_group(), torch.empty(2)
        dist.reduce_scatter_tensor(part, x)
        self.assertEqual(part, torch.full((2,), 3.0))

    def test_all_to_all(self) -> None:
        x, y = self.join_group(), torch.empty(4)
        dist.all_to_all_single(y, x)
        self.assertEqual(y, torch.tensor([1.0, 1.0, 2.0, 2.0]))

    def test_send_recv(self) -> None:
        x = self.join_group()
        dist.send(x, 1) if self.rank == 0 else dist.recv(x, 0)
        self.assertEqual(x, torch.full((4,), 1.0))

    def test_new_group(self) -> None:
        x = self.join_group()
        alone = [dist.new_group([rank]) for rank in range(2)][self.rank]
        dist.all_reduce(x, group=alone)
        self.assertEqual(x, torch.full((4,), float(self.rank + 1)))

    def test_objects(self) -> None:
        self.join_group()
        gathered = [None, None]
        dist.all_gather_object(gathered, {"rank": self.rank})
        self.assertEqual([one["rank"] for one in gathered], [0, 1])

    def test_expected_error(self) -> None:
        x = self.join_group()
        with self.assertRaisesRegex(RuntimeError, "invalid root rank: 7"):
            dist.broadcast(x, src=7)
        dist.barrier()

    def test_ddp(self) -> None:
        x = self.join_group()
        torch.manual_seed(self.rank)
        model = DistributedDataParallel(torch.nn.Linear(4, 2))
        for _ in range(3):
            model(x).sum().backward()
        gradients = [torch.empty(2, 4) for _ in range(2)]
        dist.all_gather(gradients, model.module.weight.grad)
        self.assertEqual(gradients[0], gradients[1])


class Skipped(TwoRanks):
    @common_distributed.skip_if_lt_x_gpu(2)
    def test_needs_two_devices(self) -> None:
        self.fail("not reached without devices")

    @common_distributed.skip_if_lt_x_gpu(4)
    def test_needs_four_devices(self) -> None:
        self.fail("not reached without devices")

    def test_skips_itself(self) -> None:
        self.join_group()
        dist.barrier()
        raise unittest.SkipTest("found out by the ranks, after they had met")


if __name__ == "__main__":
    common_utils.run_tests()
