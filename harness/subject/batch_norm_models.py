"""Models about batch normalisation, as fixtures/rank_host/batch_norm_models.h has them."""

import torch
from torch import nn

from .model_base import Model, batch_norm

CHANNELS = 4
BATCH_NORM_MODELS = {  # Shape beyond the channels, layer, and what of it is not usual.
    "bn_rows": ((), nn.BatchNorm1d, {}),
    "bn_sequence": ((6,), nn.BatchNorm1d, {}),
    "bn_volume": ((2, 3, 2), nn.BatchNorm3d, {}),
    "bn_cumulative": ((), nn.BatchNorm1d, {"momentum": None}),
    "bn_constant": ((), nn.BatchNorm1d, {"momentum": 0.0}),
    "bn_frozen": ((), nn.BatchNorm1d, {"trains": ()}),
    "bn_bias": ((), nn.BatchNorm1d, {"trains": ("bias",)}),
    "bn_plain": ((), nn.BatchNorm1d, {"affine": False}),
    "bn_stateless": ((), nn.BatchNorm1d, {"running": False}),
    "bn_input": ((), nn.BatchNorm1d, {"mixes_first": False}),
}


class BatchNormNet(Model):
    def __init__(self, kind, values):
        super().__init__()
        beyond, layer, usual = BATCH_NORM_MODELS[kind]
        self.x = self.y = (CHANNELS, *beyond)
        self.mixes_first = usual.get("mixes_first", True)
        mix = torch.eye(CHANNELS, dtype=values.dtype) + values.normal(CHANNELS, CHANNELS, scale=0.3)
        mix[CHANNELS - 1] *= 5e-3
        self.mix = nn.Module()
        self.mix.weight = nn.Parameter(mix)
        weight = bias = running = None
        if usual.get("affine", True):
            weight = 1 + values.normal(CHANNELS, scale=0.2)
            bias = values.normal(CHANNELS, scale=0.2)
        if usual.get("running", True):
            mean = values.normal(CHANNELS, scale=0.1)
            running = (mean, 1 + values.normal(CHANNELS, scale=0.1).square(), values.count())
        self.bn = batch_norm(layer, CHANNELS, values, weight, bias, running, usual.get("momentum", 0.1))
        for name, parameter in self.bn.named_parameters():
            parameter.requires_grad_(name in usual.get("trains", ("weight", "bias")))
        if not self.mixes_first and values.dtype in (torch.bfloat16, torch.float16):
            self.bn.float()

    def compute(self, x):
        beyond = 1
        for extent in self.x[1:]:
            beyond *= extent

        def mixed(values):
            return torch.matmul(self.mix.weight, values.reshape(x.shape[0], CHANNELS, beyond)).reshape(x.shape)

        return torch.tanh(self.normalised("bn", mixed(x)) if self.mixes_first else mixed(self.normalised("bn", x)))

    def row_loss(self, output, target):
        return (output - target).square().flatten(1).mean(1)
