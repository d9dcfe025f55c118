"""The host of one rank: a model, the subject around it, and a process group, driven step by step."""

import datetime
import os
import sys

import torch
import torch.distributed as dist

from . import faults, model_values, models
from .epochs import Epochs
from .lines import Refused, Unsupported
from .reference import penalty_of
from .spoiled import Spoiler
from .tensors import TensorSet, dtype_named, read_tensors

LEARNING_RATES = {"sgd": 1.0 / 16, "adam": 1e-3}


class Optimizer:
    """As fixtures/rank_host/optimizer.cc: what is compared over hosts must not depend on a library's version."""

    def __init__(self, name, rate):
        if name not in LEARNING_RATES:
            raise Unsupported("this host has the optimizers sgd and adam")
        self.name, self.rate, self.moments = name, rate or LEARNING_RATES[name], {}

    @torch.no_grad()
    def step(self, model):
        for name, parameter, tied_to in model_values.parameters_of(model):
            if tied_to is not None or parameter.grad is None:
                continue
            if self.name == "sgd":
                parameter.sub_(parameter.grad * self.rate)
            else:
                self.adam(name, parameter)

    def adam(self, name, parameter):
        gradient = parameter.grad
        if name not in self.moments:
            self.moments[name] = [torch.zeros_like(gradient), torch.zeros_like(gradient), 0]
        moments = self.moments[name]
        moments[2] += 1
        first, second, steps = moments
        first.mul_(0.9).add_(gradient, alpha=1 - 0.9)
        second.mul_(0.999).addcmul_(gradient, gradient, value=1 - 0.999)
        root = (second / (1 - 0.999**steps)).sqrt_().add_(1e-8)
        parameter.addcdiv_(first, root, value=-self.rate / (1 - 0.9**steps))

    def state(self):
        for name, (first, second, steps) in self.moments.items():
            yield name + "/exp_avg", first
            yield name + "/exp_avg_sq", second
            yield name + "/step", torch.tensor([steps])


def draw_apart(rank):
    """Processes that are started one by one draw each its own; forked, all would draw what their parent would have."""
    torch.manual_seed(rank + 1)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(rank + 1)


class RankHost:
    def __init__(self, subject):
        self.subject = subject
        self.fault, self.epochs = faults.Fault(), Epochs(subject)
        self.rank = self.world = self.seed = 0
        self.dtype, self.model, self.adapter, self.optimizer = torch.float64, None, None, None
        self.joined, self.options, self.spoiler = None, {}, Spoiler({}, 0, 1)
        self.recording, self.forward_number, self.kept_loss = None, 0, None

    def answered(self):
        self.fault.strike("now")

    def close(self):
        """What a program does at its end."""
        self.fault.strike("teardown")
        self.joined = self.adapter = None
        if dist.is_initialized():
            dist.destroy_process_group()

    def handle(self, message, request):
        answers = {
            "hello": self.hello, "init": self.init, "model": self.make, "wrap": self.wrap, "step": self.step, "state": self.state,
            "load": self.load, "eval": self.evaluate, "exhausted": self.exhausted, "unwrap": self.unwrap,
            "epoch": self.epoch, "fault": self.fault.ask_for,
        }
        if message not in answers:
            raise Unsupported(f"this host does not know the message {message}")
        if not request.get("must_refuse", False):
            return answers[message](request)
        try:
            return answers[message](request)
        except Unsupported:
            raise
        except Exception as error:
            raise Refused(str(error)) from error

    def hello(self, request):
        if request["protocol"] != 1:
            raise ValueError(f"protocol {request['protocol']} was asked for, this host speaks 1")
        if request.get("introduce", False):
            return {"subjects": self.subject.introduction(), "torch": torch.__version__}
        return {
            "name": "lockstep_subject", "language": "python", "torch": torch.__version__, "backends": ["gloo"],
            "implementations": self.subject.names(), "models": list(models.CATALOGUE),
        }

    def init(self, request):
        if (request["backend"], request["device"]) != ("gloo", "cpu"):
            raise Unsupported(f"needs a device: this host has gloo on the cpu, not {request['backend']} on {request['device']}")
        self.rank, self.world, self.seed = request["rank"], request["world"], request["seed"]
        draw_apart(self.rank)
        self.dtype = dtype_named(request["dtype"])
        self.fault.strike("init")
        timeout = request.get("timeout_s", 0) or 1800
        dist.init_process_group(
            "gloo", init_method="file://" + request["rendezvous"], rank=self.rank, world_size=self.world,
            timeout=datetime.timedelta(seconds=timeout),
        )
        return {}

    def make(self, request):
        self.joined = self.adapter = None
        # Ranks start from different values, so that a broadcast that does not happen shows.
        model = models.make_model(request["name"], self.dtype, self.seed * 1000003 + self.rank + 1)
        if model is None:
            raise Unsupported(f"no model is called {request['name']}")
        if request.get("file"):
            model_values.load_values(model, read_tensors(request["file"]))
        model.recorder.listener = self.hear
        self.model = model
        return model_values.describe(model)

    def needs(self, what, message):
        if what is None:
            raise Unsupported(f"{message} needs a model and wrap first")

    def wrap(self, request):
        self.needs(self.model, "wrap")
        self.options = request.get("options", {})
        self.optimizer = Optimizer(self.options.get("optimizer", "sgd"), float(self.options.get("learning_rate", 0)))
        self.joined = self.adapter = None
        if "unfit" in self.options:
            make_unfit(self.model, self.options["unfit"], self.rank == self.world - 1)
        part = self.subject.part(request["implementation"])
        self.spoiler = Spoiler(self.options, self.rank, self.world)
        self.adapter = part.adapt(self.model, self.options)
        self.spoiler.layers(getattr(self.adapter, "layers", {}).values())
        if "join" in self.options:
            self.joined = self.adapter.join(self.options["join"])
            self.joined.__enter__()
        contract = {"inner_gradient": "local", **self.adapter.contract()}
        if self.options.get("find_unused_parameters") and part.of_pytorch:
            contract["unused"] = "none"
        contract["subject"] = part.name
        contract["adapter"] = part.shape.words
        contract["defined_at"] = part.shape.defined_at
        return {"contract": contract, "changed": self.adapter.changed, "buckets": []}

    def unwrap(self, _request):
        self.joined = None
        part, self.adapter = self.adapter, None
        del part
        self.adapter = self.subject.bare(self.model)
        return {}

    def load(self, request):
        """Values in the place of those that the model has, wrapped or not."""
        self.needs(self.model, "load")
        values = read_tensors(request["file"])
        held = [("param/" + name, tensor) for name, tensor in self.named_parameters()]
        held += [("buffer/" + name, tensor) for name, tensor in self.named_buffers(self.model)]
        for name, tensor in held:
            if name in values:
                model_values.set_value(name, tensor, values[name])
        return {}

    # --- One step.

    def hear(self, moment, model, value):
        if moment == "forward_entry":
            self.fault.strike("forward")
        if self.recording is None:
            return
        if moment.startswith("norm/"):
            self.recording.add(f"after_forward/{self.forward_number}/{moment}", value)
            return
        for name, buffer in self.named_buffers(model):
            self.recording.add(f"{moment}/{self.forward_number}/buffer/{name}", buffer)
        if moment == "after_forward":
            self.forward_number += 1

    def named_buffers(self, model):
        return self.adapter.named_buffers(model) if hasattr(self.adapter, "named_buffers") else model.named_buffers()

    def named_parameters(self):
        if hasattr(self.adapter, "named_parameters"):
            return self.adapter.named_parameters(self.model)
        return ((name, parameter) for name, parameter, tied_to in model_values.parameters_of(self.model) if tied_to is None)

    def plain_loss(self, batch, mean):
        output = self.adapter.forward(batch["x"].to(self.dtype))
        if isinstance(output, (tuple, list)):
            output = output[0]
        self.recording.add("output", output)
        rows = self.model.row_loss(output, batch["y"].to(self.dtype))
        return rows.mean() if mean else rows.sum()

    def critic_loss(self, batch, penalty, mean):
        of_x = self.adapter.forward(batch["x"].to(self.dtype))
        of_y = self.adapter.forward(batch["y"].to(self.dtype))
        points = batch["points"].to(self.dtype).requires_grad_()
        (gradient,) = torch.autograd.grad(self.adapter.forward(points).sum(), points, create_graph=True)
        rows = (of_y - of_x).flatten(1).sum(1) + penalty["weight"] * penalty_of(gradient, penalty["kind"])
        return rows.mean() if mean else rows.sum()

    def step(self, request):
        self.needs(self.adapter, "step")
        if request.get("memory") or "argument" in request:
            raise Unsupported("replicas within one process are not available on the CPU")
        batch, mean = read_tensors(request["batch"]), request["loss"] == "mean"
        self.recording, self.forward_number = TensorSet(), 0
        try:
            loss = self.one_step(batch, mean, request)
            self.recording.add("loss", loss.reshape(1))
            self.recording.write(request["out"])
        except RuntimeError as error:
            if self.options.get("join") == "throw":
                raise Refused(str(error)) from error
            raise
        finally:
            self.recording = None
        if self.options.get("unwrapped"):
            self.kept_loss = loss
        return {}

    def one_step(self, batch, mean, request):
        synchronise = request.get("sync", True)
        self.adapter.train(request.get("train", True))
        if request.get("zero_grad", True):
            self.adapter.zero_grad()
        with torch.set_grad_enabled(request.get("grad", True)), self.adapter.synchronised(synchronise):
            loss = None
            for _ in range(request.get("forwards", 1)):
                penalty = request.get("penalty")
                one = self.critic_loss(batch, penalty, mean) if penalty else self.plain_loss(batch, mean)
                loss = one if loss is None else loss + one
            if request.get("backward", True):
                self.fault.strike_soon()
                self.fault.strike("backward")
                self.adapter.backward(loss)
                self.adapter.after_backward(synchronise)
                if synchronise:
                    self.spoiler.gradients(self.named_parameters(), request["step"])
        if request.get("optimize", False):
            self.optimizer.step(self.model)
            self.spoiler.parameters(self.named_parameters(), request["step"])
        return loss

    def exhausted(self, _request):
        joined, self.joined = self.joined, None
        if joined is None:
            return {}
        try:
            joined.__exit__(None, None, None)
        except RuntimeError as error:
            if self.options.get("join") == "throw":
                raise Refused(str(error)) from error
            raise
        return {}

    def state(self, request):
        self.needs(self.model, "state")
        tensors = TensorSet()
        for kind in request["which"]:
            if kind == "buffers":
                for name, buffer in self.named_buffers(self.model):
                    tensors.add("buffer/" + name, buffer)
            elif kind == "optimizer":
                for name, value in self.optimizer.state() if self.optimizer else ():
                    tensors.add("optimizer/" + name, value)
            elif kind in ("params", "grads"):
                for name, parameter in self.named_parameters():
                    if kind == "params":
                        tensors.add("param/" + name, parameter)
                    elif parameter.grad is not None:
                        tensors.add("grad/" + name, parameter.grad)
            else:
                raise Unsupported(f"state has params, grads, buffers and optimizer, not {kind}")
        tensors.write(request["out"])
        return {}

    def evaluate(self, request):
        batch, tensors = read_tensors(request["batch"]), TensorSet()
        self.model.train(False)
        with torch.no_grad():
            tensors.add("output", self.model(batch["x"].to(self.dtype)))
        tensors.write(request["out"])
        return {}

    def epoch(self, request):
        if not self.epochs.loaders:
            draw_apart(request["rank"])
        rank, world = str(request["rank"]), str(request["world"])
        os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=world, LOCAL_WORLD_SIZE=world)
        return self.epochs.epoch(request)


def make_unfit(model, how, is_last_rank):
    """The last rank's module is another one than that of the others, or every rank's has nothing to train."""
    if how == "frozen":
        model.requires_grad_(False)
        return
    if not is_last_rank:
        return
    if how == "fewer":
        model.fc4.bias = None
        return
    value = model.fc2.weight.detach()
    if how == "shape":
        changed = value[:-1].clone()  # Of the same strides.
    elif how == "strides":
        changed = value.t().contiguous().t()
    elif how == "dtype":
        changed = value.to(torch.float32)
    else:
        raise Unsupported(f"no module is unfit by its {how}")
    model.fc2.weight = torch.nn.Parameter(changed)
