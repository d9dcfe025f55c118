"""What the programs beside this file train: a small classifier on points that are drawn here, nothing is downloaded."""

import torch

torch.set_num_threads(1)
FEATURES, CLASSES = 8, 3


def points(count: int = 48) -> torch.utils.data.TensorDataset:
    drawn = torch.Generator().manual_seed(1)
    inputs = torch.randn(count, FEATURES, generator=drawn)
    return torch.utils.data.TensorDataset(inputs, inputs[:, :CLASSES].argmax(dim=1))


def classifier() -> torch.nn.Module:
    torch.manual_seed(2)
    return torch.nn.Sequential(torch.nn.Linear(FEATURES, 16), torch.nn.ReLU(), torch.nn.Linear(16, CLASSES))
