"""The reference: the same models in one process, with plain autograd. It knows no contract and no subject; what it
computes is a weighted sum that somebody else has worked out. As fixtures/rank_host/reference_host.cc."""

import torch

from . import model_values, models
from .lines import Unsupported
from .tensors import TensorSet, dtype_named, read_tensors


class Rows:
    """The rows of one forward: parts of batch files, in that order, each row with its weight."""

    def __init__(self, forward, dtype):
        columns = {"x": [], "y": [], "points": [], "weights": []}
        self.places, count = {}, 0
        for part in forward["parts"]:
            batch = read_tensors(part["batch"])
            order = None if part.get("rows") is None else torch.tensor(part["rows"], dtype=torch.int64)
            for name in ("x", "y", "points"):
                if name in batch:
                    values = batch[name].to(dtype)
                    columns[name].append(values if order is None else values.index_select(0, order))
            own = columns["x"][-1].shape[0]
            weights = torch.tensor(part["weights"], dtype=torch.float64)
            if weights.numel() not in (1, own):
                raise ValueError(f"{weights.numel()} weights for {own} rows")
            columns["weights"].append(weights.expand(own))
            if "rank" in part:
                self.places.setdefault(part["rank"], []).append((count, own, order))
            count += own
        joined = {name: torch.cat(values) if values else None for name, values in columns.items()}
        self.x, self.y, self.points, self.weights = (joined[name] for name in ("x", "y", "points", "weights"))

    def of_rank(self, values, rank):
        """Of values by row, those of a rank, in the order of its batch."""
        own = []
        for first, count, order in self.places[rank]:
            part = values.narrow(0, first, count)
            own.append(part if order is None else part.index_select(0, order.argsort()))
        return torch.cat(own)


def penalty_of(gradient, kind):
    if kind not in ("wgan_gp", "wgan_lp", "dragan"):
        raise Unsupported(f"this host has the penalties wgan_gp, wgan_lp and dragan, not {kind}")
    excess = gradient.flatten(1).norm(2, 1) - 1
    return (torch.relu(excess) if kind == "wgan_lp" else excess).square()


def critic_rows(model, rows, penalty):
    """Of each row what the critic says of y less what it says of x, and the penalty at all points together."""
    of_x, of_y = model(rows.x), model(rows.y)
    points = rows.points.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(model(points).sum(), points, create_graph=True)
    return (of_y - of_x).flatten(1).sum(1) + penalty["weight"] * penalty_of(gradient, penalty["kind"])


class NormOfNothing:
    """Batch normalisation that is asked about no rows: a batch more, and nothing else."""

    def __init__(self, layer):
        self.layer, self.forward = layer, layer.forward

    def __call__(self, x):
        if x.numel() > 0:
            return self.forward(x)
        if self.layer.training and self.layer.num_batches_tracked is not None:
            self.layer.num_batches_tracked.add_(1)
        return x


class ReferenceHost:
    def __init__(self):
        self.dtype, self.seed, self.name, self.file = "float64", 0, "", None

    def answered(self):
        pass

    def handle(self, message, request):
        if message == "hello":
            return {
                "name": "lockstep_subject/reference",
                "language": "python",
                "torch": torch.__version__,
                "models": list(models.CATALOGUE),
            }
        if message == "init":
            self.dtype, self.seed = request["dtype"], request["seed"]
            dtype_named(self.dtype)
            return {}
        if message == "model":
            self.name, self.file = request["name"], request.get("file")
            return model_values.describe(self.made(dtype_named(self.dtype), False))
        if message == "reference":
            return self.reference(request)
        raise Unsupported(f"the reference host does not know the message {message}")

    def made(self, dtype, widened):
        model = models.make_model(self.name, dtype, self.seed, widened)
        if model is None:
            raise Unsupported(f"no model is called {self.name}")
        if self.file:
            model_values.load_values(model, read_tensors(self.file))
        return model

    def reference(self, request):
        dtype = dtype_named(request.get("dtype", self.dtype))
        model = self.made(dtype, request.get("widen", dtype == torch.float64))
        model.train(request.get("train", True))
        normalised, out, left = {}, TensorSet(), []
        for layer in model.children():
            if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm):
                layer.forward = NormOfNothing(layer)

        def hear(moment, _model, value):
            if moment.startswith("norm/"):
                normalised[moment] = value

        model.recorder.listener = hear
        total = torch.zeros(1, dtype=dtype)
        for forward in request["forwards"]:
            if "buffers_after" in forward:
                model_values.load_buffers(model, left[forward["buffers_after"]])
            elif forward.get("buffers"):
                model_values.load_buffers(model, read_tensors(forward["buffers"]))
            total += self.one_forward(model, request, Rows(forward, dtype), normalised, out, left)
        out.add("loss", total)
        for name, parameter, tied_to in model_values.parameters_of(model):
            if tied_to is None and parameter.grad is not None:
                out.add("grad/" + name, parameter.grad)
        out.write(request["out"])
        return {}

    def one_forward(self, model, request, rows, normalised, out, left):
        number = len(left)
        if request.get("penalty"):
            row_loss = critic_rows(model, rows, request["penalty"])
        else:
            output = model(rows.x) * request.get("argument", 1.0)
            row_loss = model.row_loss(output, rows.y)
            out.add(f"output/{number}", output)
        loss = (row_loss * rows.weights.to(row_loss.dtype)).sum()
        # Gradients of a sum add up in the leaves; one backward each, so that the next forward may set the buffers.
        if request.get("grad", True):
            loss.backward()
        left.append({"buffer/" + name: buffer.detach().clone() for name, buffer in model.named_buffers()})
        if not request.get("penalty"):  # Three forwards in one: what is left belongs to none of them alone.
            for name, value in left[-1].items():
                out.add(f"after_forward/{number}/{name}", value)
            for moment, values in normalised.items():
                for rank in rows.places:
                    out.add(f"rank/{rank}/after_forward/{number}/{moment}", rows.of_rank(values, rank))
        return loss.detach()
