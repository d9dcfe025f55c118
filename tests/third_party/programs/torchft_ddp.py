"""A replica of torchft's fault tolerant DDP: its own rank 0 of 1, reduces with the other replicas over a group of torchft's."""

import datetime
import os

import data
import torch
import torchft

STEPS = 6


def main() -> None:
    replica = int(os.environ["REPLICA_GROUP_ID"])
    sampler = torchft.DistributedSampler(data.points(), replica_rank=replica, num_replica_groups=2, group_rank=0,
                                         num_replicas=1, shuffle=False)
    loader = torch.utils.data.DataLoader(data.points(), batch_size=4, sampler=sampler)
    module = data.classifier()
    inner = torch.optim.SGD(module.parameters(), lr=0.1)

    def load(state: dict) -> None:
        module.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])

    manager = torchft.Manager(
        pg=torchft.ProcessGroupGloo(timeout=datetime.timedelta(seconds=20)), min_replica_size=2, load_state_dict=load,
        state_dict=lambda: {"model": module.state_dict(), "optimizer": inner.state_dict()},
        replica_id=f"replica_{replica}_", timeout=datetime.timedelta(seconds=20))
    model, optimizer = torchft.DistributedDataParallel(manager, module), torchft.Optimizer(manager, inner)
    batches = iter(loader)
    while manager.current_step() < STEPS:
        inputs, labels = next(batches)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
    print(f"replica {replica}: {manager.current_step()} steps, weights {sum(p.sum() for p in module.parameters()):.4f}")
    manager.shutdown()


if __name__ == "__main__":
    main()
