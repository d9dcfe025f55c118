"""A call from one frame that lies at one place on the stack and comes from elsewhere each time; and from code that is
made anew, at the place of what it replaces."""

import torch
import torch.distributed as dist


def reduce():
    dist.all_reduce(torch.ones(1))


def both():
    reduce()  # SITE: first
    reduce()  # SITE: second


dist.init_process_group("gloo")
for _ in range(2):
    both()
for name in ("one.py", "two.py", "one.py"):
    exec(compile("def cell():\n  reduce()\ncell()\n", name, "exec"))
dist.destroy_process_group()
