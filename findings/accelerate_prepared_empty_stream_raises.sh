#!/usr/bin/env bash
# A DataLoader over an IterableDataset that has nothing to give in this pass (a filter that leaves no sample, a stream that is
# used up) yields no batch. After accelerate's prepare(), with more than one process and default options, the same loop
# raises on every process: TypeError "Unsupported types (<class 'NoneType'>) passed to `_gpu_broadcast_one`". The
# text speaks of GPUs, of which there are none, and not of the empty data set. For an IterableDataset prepare() chooses
# dispatch_batches=True, where process 0 reads and broadcasts; an empty map-style data set, or dispatch_batches=False, is
# quietly an epoch without batches, as is the same loader with one process.
#
# accelerate 1.15.0, torch 2.15.0, Python 3.11, two processes on the CPU.
# Seen: plain 0 batches; prepared, map-style 0 batches; prepared, stream TypeError on both; prepared with
# dispatch_batches=False 0 batches.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q --disable-pip-version-check torch==2.15.0 accelerate==1.15.0 numpy
cat > "$folder/empty.py" <<'END'
import sys

import torch.distributed as dist
from accelerate import Accelerator, DataLoaderConfiguration
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __iter__(self):
        return iter(())


def batches(loader):
    try:
        return sum(1 for _ in loader)
    except TypeError as error:
        return str(error)


def prepared(data, **options):
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**options))
    return batches(accelerator.prepare(DataLoader(data, batch_size=4)))


plain = batches(DataLoader(Stream(), batch_size=4))
mapped = prepared([])
dispatched = prepared(Stream())
sharded = prepared(Stream(), dispatch_batches=False)
print(f"rank {dist.get_rank()}: plain {plain}; map-style {mapped}; stream {dispatched}; without dispatch {sharded}", flush=True)
same = plain == mapped == sharded == 0 and "NoneType" in str(dispatched) and "_gpu_broadcast_one" in str(dispatched)
sys.exit(0 if same else 1)
END
if OMP_NUM_THREADS=1 "$folder/venv/bin/torchrun" --standalone --nproc-per-node 2 "$folder/empty.py" 2> "$folder/errors"; then
  echo "still so: a prepared loader over an empty stream raises a TypeError"
else
  cat "$folder/errors" >&2
  echo "changed: see above" >&2
  exit 1
fi
