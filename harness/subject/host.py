"""What a host program does: one conversation, or hosts forked from a warm parent."""

import ctypes
import gc
import os
import sys

import torch
import torch._dynamo  # DistributedDataParallel imports it when it is made: once here, not in every rank.
import torch.distributed
import torch.nn.parallel
import torch.utils.data

from . import lines, rank, reference, subject, warm as server


def warm_up():
    """More than one thread would start a pool, which a forked host would wait for in vain."""
    torch.set_num_threads(1)
    parameter = torch.ones(2, requires_grad=True)
    (parameter * 2).sum().backward()
    gc.freeze()


def enter_tap():
    """What is preloaded waits to be told that this process is to be seen."""
    # With the interpreter's lock held: without it nobody's frames can be read.
    enter = getattr(ctypes.PyDLL(None), "lockstep_shim_enter", None)
    if enter is not None and os.environ.get("LOCKSTEP_HISTORY"):
        enter()


def run(descriptor, asked):
    """One conversation; ends the process."""
    is_reference = os.environ.get("LOCKSTEP_ROLE") == "reference"
    if not is_reference:
        enter_tap()
    host = reference.ReferenceHost() if is_reference else rank.RankHost(asked)
    status, whole = 1, False
    try:
        status, whole = lines.serve(descriptor, host)
    except SystemExit as error:
        # The subject has ended the process, as sys.exit() does.
        status = error.code if isinstance(error.code, int) else 1 if error.code else 0
        whole = True
    if whole and not is_reference:
        try:
            host.close()
        except BaseException as error:
            sys.__excepthook__(type(error), error, error.__traceback__)
            status = 1
        del host
        sys.stdout.flush()
        sys.exit(status)
    for stream in (sys.__stdout__, sys.__stderr__):
        stream.flush()
    os._exit(status)


def warm(spec, kind):
    asked = subject.Subject(spec, kind)
    asked.know_of_pytorch()
    warm_up()
    return server.serve(lambda descriptor: run(descriptor, asked))


def converse(descriptor, spec, kind):
    warm_up()
    run(descriptor, subject.Subject(spec, kind))
