"""accelerate's notebook_launcher, as a notebook calls it: two forked ranks of PyTorch's elastic launcher, twice."""

import socket

import accelerate
import data
import torch


def train(epochs: int) -> None:
    accelerator = accelerate.Accelerator(cpu=True)
    model = data.classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(data.points(), batch_size=8)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for _ in range(epochs):
        for inputs, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    losses = accelerator.gather(loss.detach().reshape(1))
    accelerator.print("losses of the last step", [round(value, 4) for value in losses.tolist()])
    accelerator.end_training()


if __name__ == "__main__":
    for epochs in (1, 2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        accelerate.notebook_launcher(train, (epochs,), num_processes=2, use_port=port)
