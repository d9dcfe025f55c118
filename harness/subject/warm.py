"""The warm parent's side of starting hosts by fork; harness/protocol/warm_server.h is the same in C++.

A warm parent has imported torch once, has one thread, and forks a host through an intermediate that exits, so that the
host becomes a child of the supervisor.
"""

import ctypes
import json
import os
import signal
import socket
import traceback

CONTROL = 3
PACKET_BYTES_MAX = 65536
NOT_STARTED = 125
PR_SET_PDEATHSIG = 1


def parent_of_this():
    """Not os.getppid(): what is preloaded has its own idea of orphans."""
    with open("/proc/self/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1])


def become_host(request, descriptors, gate):
    """In the forked host. The gate opens when the intermediate is gone, that is, when its parent is the supervisor."""
    supervisor = request["supervisor"]
    if os.read(gate, 1) != b"g" or parent_of_this() != supervisor:
        os._exit(NOT_STARTED)
    if ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0 or parent_of_this() != supervisor:
        os._exit(NOT_STARTED)
    os.setpgid(0, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.environ.update(request.get("environment", {}))
    os.dup2(descriptors[1], 1)
    os.dup2(descriptors[2], 2)
    for descriptor in descriptors[1:]:
        os.close(descriptor)
    os.close(gate)


def start(control, request, descriptors, run):
    """Forks, and returns the process id of the host. Never returns in the host."""
    named_read, named_write = os.pipe()
    gate_read, gate_write = os.pipe()
    intermediate = os.fork()
    if intermediate == 0:
        host = os.fork()
        if host != 0:
            os.write(named_write, host.to_bytes(8, "little"))
            os._exit(0)
        control.close()
        for descriptor in (named_read, named_write, gate_write):
            os.close(descriptor)
        become_host(request, descriptors, gate_read)
        try:
            run(descriptors[0])
        except SystemExit:
            raise  # Through the frames of the warm parent, which nobody handles: the interpreter ends as a program's does.
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    os.close(named_write)
    os.close(gate_read)
    named = os.read(named_read, 8)
    os.close(named_read)
    os.waitpid(intermediate, 0)
    try:
        if len(named) != 8:
            raise OSError("the intermediate process died before it named the host")
        os.write(gate_write, b"g")  # Without it a host that nobody knows leaves by itself.
    finally:
        os.close(gate_write)
    return int.from_bytes(named, "little")


def answer(control, packet, descriptors, run):
    request = json.loads(packet)
    try:
        if len(descriptors) != 3:
            raise OSError("a fork request needs three descriptors")
        threads = len(os.listdir("/proc/self/task"))
        if threads != 1:
            raise OSError(f"the warm parent has {threads} threads, must have 1")
        reply = {"id": request["id"], "pid": start(control, request, descriptors, run)}
    except OSError as error:
        reply = {"id": request["id"], "error": str(error)}
    control.send(json.dumps(reply).encode() + b"\n")


def serve(run):
    """Until the supervisor closes the socket. `run` gets the descriptor of the conversation, and ends the process."""
    control = socket.socket(fileno=CONTROL)
    control.set_inheritable(False)
    control.send(json.dumps({"warm": os.getpid()}).encode() + b"\n")
    while True:
        packet, descriptors, _flags, _address = socket.recv_fds(control, PACKET_BYTES_MAX, 4)
        if not packet:
            return 0
        answer(control, packet, descriptors, run)
        for descriptor in descriptors:
            os.close(descriptor)
