"""The adapter of a class that normalises batches over ranks: it takes the place of the batch normalisations of a model, and
the host averages the gradients."""

import inspect

import torch
import torch.distributed as dist
from torch import nn

from . import averaging, model_values, shapes

NUM_FEATURES = ("num_features", "channels", "num_channels", "features", "dim", "n_features", "c", "planes", "size", "in_features")
ROLES = {
    "weight": ("weight", "gamma", "scale", "g", "w"),
    "bias": ("bias", "beta", "shift", "b", "offset"),
    "running_mean": ("running_mean", "moving_mean", "mean", "run_mean", "ema_mean"),
    "running_var": ("running_var", "moving_var", "running_variance", "moving_variance", "var", "run_var", "ema_var"),
    "num_batches_tracked": ("num_batches_tracked", "batches", "num_batches", "step", "steps"),
}
EXTENTS = {2: (), 3: (6,), 4: (3, 3), 5: (2, 3, 2)}


def make_layer(thing, options):
    """`options`: num_features, eps, momentum, affine, track_running_stats; given where the class has them."""
    positional, named = [], {}
    for i, (name, parameter) in enumerate(shapes.signature_of(thing).items()):
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if i == 0:
            positional.append(options["num_features"])
        elif name in options:
            named[name] = options[name]
        elif shapes.MEANING_OF.get(name) == "world":
            named[name] = dist.get_world_size()
        elif shapes.MEANING_OF.get(name) == "rank":
            named[name] = dist.get_rank()
        elif parameter.default is parameter.empty:
            named[name] = dist.group.WORLD if shapes.MEANING_OF.get(name) == "group" else None
    return thing(*positional, **named)


def tensors_of(layer):
    """Its parameters and buffers by what they are: names of the model's own layer."""
    own = dict(layer.named_parameters())
    own.update(layer.named_buffers())
    found = {}
    for role, names in ROLES.items():
        for name in names:
            if name in own and role not in found:
                found[role] = own[name]
    return found


def norm_shape(name, thing):
    if not inspect.isclass(thing) or not issubclass(thing, nn.Module):
        raise shapes.Mismatch(name, "a class of modules that is given a number of features", f"it is {thing!r}", "")
    parameters = shapes.signature_of(thing)
    needed = [p.name for p in shapes.required(parameters)]
    first = next(iter(parameters), "")
    unknown = [n for n in needed[1:] if n not in shapes.MEANING_OF]
    if first not in NUM_FEATURES or unknown:
        raise shapes.Mismatch(
            name, "a constructor that is given a number of features first (num_features)",
            f"{thing.__name__}({', '.join(parameters)}) at {shapes.place_of(thing)}", "",
        )
    shape = shapes.Shape(form="sync_bn", words="class of batch normalisation, in the place of the model's own",
                         defined_at=shapes.place_of(thing), function=thing.__name__)
    shape.contract = {"gradient": "mean_of_rank_means", "statistics": "global", "buffers": "synchronised", "inner_gradient": "global"}
    source = shapes.whole_source(thing)
    for feature in ("affine", "track_running_stats", "momentum", "eps"):
        if feature in parameters:
            shape.offers[feature] = f"parameter {feature}"
        else:
            shape.lacks[feature] = f"no parameter {feature}"
    equal = shapes.EQUAL_ROWS.search((thing.__doc__ or "") + source)
    if equal:
        shape.lacks["uneven_rows"] = f"it says of itself: {equal.group(0)!r}"
    else:
        shape.offers["uneven_rows"] = "nothing says otherwise"
    biased = shapes.BIASED_RUNNING.search(thing.__doc__ or "")  # What it tells its users, no name and no comment.
    if biased:
        shape.lacks["unbiased_running"] = f"it says of itself: {biased.group(0)!r}; running values are not those of one process"
    else:
        shape.offers["unbiased_running"] = "nothing says otherwise"
    try_dimensions(thing, shape)
    return shape


def try_dimensions(thing, shape):
    """Which inputs it is for, found in a group of one, where it has to be ordinary batch normalisation."""
    mine = not dist.is_initialized()
    if mine:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        for dimensions, extents in EXTENTS.items():
            why = why_not(thing, (6, 4, *extents))
            feature = f"dim{dimensions}"
            if why:
                shape.lacks[feature] = f"in one process, of an input of {dimensions} dimensions, {why}"
            else:
                shape.offers[feature] = "in one process it gives what batch normalisation gives"
        if not any(feature.startswith("dim") for feature in shape.offers):
            for dimensions in EXTENTS:  # Then its own first mistake is to be seen.
                shape.offers[f"dim{dimensions}"] = shape.lacks.pop(f"dim{dimensions}")
    finally:
        if mine:
            dist.destroy_process_group()


def why_not(thing, extents):
    x = torch.randn(extents, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    try:
        layer = make_layer(thing, {"num_features": 4}).to(torch.float64)
        layer.train()
        output = layer(x)
    except Exception as error:
        return f"it raises {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    expected = nn.functional.batch_norm(x, None, None, None, None, True, 0.0, getattr(layer, "eps", 1e-5))
    if not isinstance(output, torch.Tensor) or output.shape != expected.shape or (output - expected).abs().max() > 1e-3:
        return "it gives something else than batch normalisation"
    return ""


class NormAdapter:
    """The model with the subject's layers in it."""

    changed = False

    def __init__(self, shape, thing, model, options):
        self.shape, self.model, self.options = shape, model, options
        self.layers = {}
        for name, layer in list(model.named_children()):
            if isinstance(layer, nn.modules.batchnorm._BatchNorm):
                self.layers[name] = self.replace(thing, name, layer)

    def replace(self, thing, name, layer):
        options = {
            "num_features": layer.num_features, "eps": layer.eps, "momentum": layer.momentum, "affine": layer.affine,
            "track_running_stats": layer.track_running_stats,
        }
        new = make_layer(thing, options).to(next(self.model.parameters()).dtype)
        setattr(self.model, name, new)
        own, found = dict(layer.named_parameters()), tensors_of(new)
        own.update(layer.named_buffers())
        with torch.no_grad():
            for role, value in own.items():
                if role in found:
                    found[role].copy_(value)
        return new

    def names(self, model, buffers):
        roles = ("running_mean", "running_var", "num_batches_tracked") if buffers else ("weight", "bias")
        own = {id(t) for layer in self.layers.values() for t in list(layer.parameters()) + list(layer.buffers())}
        plain = model.named_buffers() if buffers else model_values.parameters_of(model)
        for name, tensor, *tied in plain:
            if id(tensor) not in own and not any(tied):
                yield name, tensor
        for name, layer in self.layers.items():
            found = tensors_of(layer)
            for role in roles:
                if role in found:
                    yield f"{name}.{role}", found[role]

    def named_parameters(self, model):
        return self.names(model, buffers=False)

    def named_buffers(self, model):
        return self.names(model, buffers=True)

    def train(self, on):
        self.model.train(on)

    def zero_grad(self):
        for parameter in self.model.parameters():
            parameter.grad = None

    def forward(self, x):
        return self.model(x)

    def synchronised(self, _on):
        return torch.enable_grad() if torch.is_grad_enabled() else torch.no_grad()

    def backward(self, loss):
        loss.backward()

    def after_backward(self, synchronise):
        if synchronise:
            averaging.average(self.model.parameters())

    def contract(self):
        return dict(self.shape.contract)
