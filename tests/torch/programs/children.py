"""Processes of all kinds around two ranks that mp.spawn starts; each says "from KIND". Only the ranks make groups."""

import os
import subprocess
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.utils.data import DataLoader


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.tensor([float(index)])


def rank_main(rank, world, port):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    for context in ("fork", "spawn"):
        for batch in DataLoader(Numbers(), batch_size=2, num_workers=1, multiprocessing_context=context):
            dist.all_reduce(batch)
    subprocess.run([sys.executable, "-c", "import torch; print('from python', flush=True)"], check=True)
    subprocess.run(["/bin/sh", "-c", "echo from shell"], check=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(rank_main, args=(2, os.environ["MASTER_PORT"]), nprocs=2)
    child = os.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-c", "print('from exec', flush=True)"])
    os.waitpid(child, 0)
