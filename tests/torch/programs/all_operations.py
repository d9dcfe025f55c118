"""Every way to issue an operation, on two ranks. Prints what is issued by each: "name: operation operation"."""

import threading
import warnings

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as differentiable
from torch.nn.parallel import DistributedDataParallel

warnings.simplefilter("ignore")


def tensors():
    return [torch.zeros(2) for _ in range(2)]


def peer():
    return 1 - dist.get_rank()


def exchange():
    work = dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.ones(2), peer()), dist.P2POp(dist.irecv, torch.zeros(2), peer())])
    for each in work:
        each.wait()


def message(receive):
    dist.send(torch.ones(2), 1) if dist.get_rank() == 0 else receive(torch.zeros(2))


def message_without_waiting():
    work = dist.isend(torch.ones(2), 1, tag=3) if dist.get_rank() == 0 else dist.irecv(torch.zeros(2), 0, tag=3)
    work.wait()


def coalesced():
    with dist._coalescing_manager():
        for _ in range(3):
            dist.all_reduce(torch.ones(2))


def gather_of_many():
    with dist._coalescing_manager():
        for _ in range(2):
            dist.all_gather_into_tensor(torch.zeros(4), torch.ones(2))


def on_group():
    group = dist.new_group([0, 1])
    dist.all_reduce(torch.ones(2), group=group)
    dist.destroy_process_group(group)


def in_thread():
    thread = threading.Thread(target=lambda: dist.all_reduce(torch.ones(2)))
    thread.start()
    thread.join()


def differentiated():
    weight = torch.ones(2, requires_grad=True)
    differentiable.all_reduce(weight * 2).sum().backward()


def ddp_step():
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)))
    model(torch.ones(4, 2)).sum().backward()


def without_gradients(mode):
    with mode():
        dist.all_reduce(torch.ones(2))


def by_role(sends, receives):
    return sends if dist.get_rank() == 0 else receives


def cases():
    ones, objects = torch.ones, [{"rank": dist.get_rank()}]
    first = dist.get_rank() == 0
    yield "all_reduce", "all_reduce", lambda: dist.all_reduce(ones(2))
    yield "asynchronous", "all_reduce", lambda: dist.all_reduce(ones(2), async_op=True).wait()
    yield "maximum", "all_reduce", lambda: dist.all_reduce(ones(2), op=dist.ReduceOp.MAX)
    yield "broadcast", "broadcast", lambda: dist.broadcast(ones(2), 1)
    yield "reduce", "reduce", lambda: dist.reduce(ones(2), 0)
    yield "all_gather", "all_gather", lambda: dist.all_gather(tensors(), ones(2))
    yield "all_gather_into_tensor", "all_gather_into_tensor", lambda: dist.all_gather_into_tensor(ones(4), ones(2))
    yield "reduce_scatter", "reduce_scatter", lambda: dist.reduce_scatter(ones(2), tensors())
    yield "reduce_scatter_tensor", "reduce_scatter_tensor", lambda: dist.reduce_scatter_tensor(ones(2), ones(4))
    yield "gather", "gather", lambda: dist.gather(ones(2), tensors() if first else None, dst=0)
    yield "scatter", "scatter", lambda: dist.scatter(ones(2), tensors() if first else None, src=0)
    yield "all_to_all_single", "all_to_all_single", lambda: dist.all_to_all_single(ones(2), ones(2))
    yield "barrier", "barrier", dist.barrier
    yield "monitored_barrier", "monitored_barrier", dist.monitored_barrier
    yield "send", by_role("send", "recv"), lambda: message(lambda tensor: dist.recv(tensor, 0))
    yield "from anyone", by_role("send", "recv_any"), lambda: message(dist.recv)
    yield "isend", by_role("send", "recv"), message_without_waiting
    yield "exchange", "send recv", exchange
    yield "objects", "broadcast broadcast", lambda: dist.broadcast_object_list(objects, 0)
    yield "all objects", "all_gather_into_tensor all_gather_into_tensor", lambda: dist.all_gather_object([None, None], objects)
    yield "gathered objects", "all_gather gather", lambda: dist.gather_object(objects, [None, None] if first else None, dst=0)
    yield "scattered objects", "broadcast scatter scatter", lambda: dist.scatter_object_list([None], [1, 2] if first else None, src=0)
    yield "group", "all_reduce", on_group
    yield "thread", "all_reduce", in_thread
    yield "coalesced", "all_reduce_coalesced", coalesced
    yield "coalesced gather", "all_gather_coalesced", gather_of_many
    yield "no_grad", "all_reduce", lambda: without_gradients(torch.no_grad)
    yield "inference_mode", "all_reduce", lambda: without_gradients(torch.inference_mode)
    yield "functional", "all_reduce", lambda: functional.all_reduce(ones(2), "sum", dist.group.WORLD).sum()
    yield "functional gather", "all_gather_coalesced", lambda: functional.all_gather_tensor(ones(2), 0, dist.group.WORLD).sum()
    yield "differentiable", "all_reduce all_reduce", differentiated
    yield "ddp", "all_gather broadcast all_reduce", ddp_step


def main():
    dist.init_process_group("gloo")
    for name, operations, run in cases():
        run()
        print(f"{name}: {operations}")
    dist.destroy_process_group()


main()
