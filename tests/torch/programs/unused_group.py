"""Rank 1 issues nothing at all, on groups that it is a member of; then the same again after a new start."""

import torch
import torch.distributed as dist


def one_world():
    dist.init_process_group("gloo")
    pair = dist.new_group([0, 1])  # SITE: pair
    dist.new_group([0])
    if dist.get_rank() == 0:
        work = dist.all_reduce(torch.ones(1), group=pair, async_op=True)  # SITE: alone
        del work
    dist.destroy_process_group()


one_world()
one_world()
