#!/usr/bin/env bash
# A training loader with a sampler of one's own (a curriculum, say: easy items first) is shuffled by Lightning once there
# is more than one process, although the docstring of the wrapper that it puts around the sampler says that `shuffle` and
# `seed` have no effect there: "It is up to the underlying sampler to handle randomness and shuffling."
#
# lightning 2.6.6, torch 2.15.0, Python 3.11; DistributedSamplerWrapper in lightning/fabric/utilities/distributed.py,
# injected by Trainer (use_distributed_sampler=True, the default) for every training loader whose sampler is neither a
# RandomSampler nor a SequentialSampler, with shuffle=True.
#
# Seen: one process reads 0 1 2 ... 15; of two, rank 0 reads 5 6 11 7 1 9 10 13 and rank 1 reads 15 4 2 12 0 8 3 14.
# The wrapper draws a permutation of the positions in the sampler's list (DistributedSampler.__iter__). The same sampler
# in a validation loader keeps its order: 0 2 4 ... and 1 3 5 ...
# Way out: use_distributed_sampler=False, and a sampler that shards itself.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q --disable-pip-version-check torch==2.15.0 lightning==2.6.6
cat > "$folder/order.py" <<'END'
import os
import sys

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, Dataset, Sampler


class Items(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        return torch.tensor([float(index)])


class EasyFirst(Sampler):
    def __len__(self):
        return 16

    def __iter__(self):
        return iter(range(16))


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer, self.trained, self.validated = torch.nn.Linear(1, 1), [], []

    def training_step(self, batch, _):
        self.trained += [int(value) for value in batch.flatten()]
        return self.layer(batch).sum()

    def validation_step(self, batch, _):
        self.validated += [int(value) for value in batch.flatten()]

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)

    def on_train_end(self):
        words = ["read", self.global_rank, "trained", *self.trained, "validated", *self.validated]
        os.write(1, (" ".join(map(str, words)) + "\n").encode())  # In one piece: two processes write.


if __name__ == "__main__":
    processes = int(sys.argv[1])
    pl.seed_everything(1, verbose=False)
    trainer = pl.Trainer(
        accelerator="cpu", devices=processes, strategy="ddp_spawn" if processes > 1 else "auto", max_epochs=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0)
    loaders = [DataLoader(Items(), batch_size=2, sampler=EasyFirst()) for _ in range(2)]
    trainer.fit(Net(), *loaders)
END
cd "$folder"
alone=$(venv/bin/python order.py 1 2>/dev/null | grep '^read')
together=$(venv/bin/python order.py 2 2>/dev/null | grep '^read' | sort)
printf '%s\n%s\n' "$alone" "$together"
[[ $alone == "read 0 trained 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 validated 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15" ]]
grep -q '^read 0 trained 5 6 11 7 1 9 10 13 validated 0 2 4 6 8 10 12 14$' <<< "$together"
grep -q '^read 1 trained 15 4 2 12 0 8 3 14 validated 1 3 5 7 9 11 13 15$' <<< "$together"
echo "still so: an ordered sampler is shuffled by two processes"
