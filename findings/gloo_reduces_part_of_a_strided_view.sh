#!/usr/bin/env bash
# torch.distributed over Gloo takes a tensor with gaps (a column, every second element) in all_reduce, broadcast, reduce and
# scatter, raises nothing, and handles as many elements as the tensor has from its first address on: those in the gaps are
# sent and overwritten, and the tensor's own later ones are left as they were. send and recv refuse the same tensor
# ("has to be contiguous"), all_gather copes with it, and so do all of them with a transposed one, which has no gaps.
# Ranks then go on with values that differ, with the right shape and nothing said.
#
# torch 2.15.0 (2.11.0: the same), Python 3.11, two processes.
#
# Seen: rank 0 has 10 11 ... 17, rank 1 has 20 21 ... 27, both all_reduce base[::2]. Expected 30 34 38 42; rank 0 holds
# 30 34 14 16 and rank 1 holds 30 34 24 26, and base[1], which is in no tensor that was handed over, is 32 on both.
# Way out: hand over tensor.contiguous(), and copy back.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q --disable-pip-version-check torch==2.15.0 numpy
cat > "$folder/strided.py" <<'END'
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()


def told(name, values):
    both = [None, None]
    dist.all_gather_object(both, [int(value) for value in values.flatten()])
    if rank == 0:
        print(name, *both, flush=True)
    return both


def fresh():
    return torch.arange(8.0) + 10 * (rank + 1)


base = fresh()
dist.all_reduce(base[::2])
reduced = told("all_reduce", base[::2])
between = told("in its gaps", base[1::2])
base = fresh()
dist.broadcast(base[::2], 0)
sent = told("broadcast", base[::2])
base = fresh()
dist.all_reduce(base.view(4, 2).t())
transposed = told("all_reduce, transposed", base)
try:
    dist.send(fresh()[::2], 1) if rank == 0 else dist.recv(fresh()[::2], 0)
    refused = False
except RuntimeError as error:
    refused = "contiguous" in str(error)
same = (
    reduced == [[30, 34, 14, 16], [30, 34, 24, 26]]
    and between == [[32, 36, 15, 17], [32, 36, 25, 27]]
    and sent == [[10, 12, 14, 16], [10, 12, 24, 26]]
    and transposed == [[30, 32, 34, 36, 38, 40, 42, 44]] * 2
    and refused
)
dist.destroy_process_group()
sys.exit(0 if same else 1)
END
if GLOO_SOCKET_IFNAME=lo OMP_NUM_THREADS=1 "$folder/venv/bin/python" -m torch.distributed.run --nproc-per-node 2 --standalone \
    "$folder/strided.py" 2> "$folder/errors"; then
  echo "still so: half of a tensor with gaps is reduced"
else
  cat "$folder/errors" >&2
  echo "changed: see above" >&2
  exit 1
fi
