"""What a model holds: named, described, and given other values. As fixtures/rank_host/model_requests.cc."""

import torch


def parameters_of(model):
    """Names, parameters, and of a tied one its first name."""
    first = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        yield name, parameter, first.get(id(parameter))
        first.setdefault(id(parameter), name)


def describe(model):
    def entry(name, tensor, tied_to=None):
        dtype = str(tensor.dtype).removeprefix("torch.")
        return {
            "name": name,
            "numel": tensor.numel(),
            "shape": list(tensor.shape),
            "dtype": dtype,
            "tied_to": tied_to,
            "contiguous": tensor.is_contiguous(),
            "requires_grad": tensor.requires_grad,
        }

    return {
        "parameters": [entry(*one) for one in parameters_of(model)],
        "buffers": [entry(name, buffer) for name, buffer in model.named_buffers()],
        "x": list(model.x),
        "y": list(model.y),
    }


def set_value(name, tensor, value):
    if tensor.shape != value.shape:
        raise ValueError(f"the file's value of {name} has another shape")
    with torch.no_grad():
        tensor.copy_(value)


def load_values(model, values):
    for name, parameter, tied_to in parameters_of(model):
        if tied_to is None:
            if "param/" + name not in values:
                raise ValueError(f"the file has no param/{name}")
            set_value(name, parameter, values["param/" + name])
    load_buffers(model, values)


def load_buffers(model, values):
    for name, buffer in model.named_buffers():
        if "buffer/" + name in values:
            set_value(name, buffer, values["buffer/" + name])
