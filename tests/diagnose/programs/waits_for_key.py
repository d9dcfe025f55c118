"""Rank 1 waits for a key in the store that the others would set after a collective that needs rank 1."""

import sys

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank() == 1:
        store.get("data is ready")  # SITE: get
    dist.all_reduce(torch.ones(1))  # SITE: sum
    if dist.get_rank() != 1:
        store.set("data is ready", "yes")
    dist.destroy_process_group()


main()
