"""The conversation: one JSON object a line, read and answered. All exceptions of the subject end here."""

import json
import os
import re
import select
import socket
import sys

from . import where

LINE_BYTES_MAX = 1 << 20


class Unsupported(Exception):
    """The host does not have what was asked for."""


class Refused(Exception):
    """The subject raised what its contract declares for this input."""


class Lines:
    """Waits in poll(2), never in a read: a sample taken from outside finds a wait that can be looked at."""

    def __init__(self, descriptor):
        self.socket = socket.socket(fileno=descriptor)
        self.socket.setblocking(False)
        self.pending = b""

    def _await(self, events):
        poll = select.poll()
        poll.register(self.socket.fileno(), events)
        poll.poll()

    def read(self):
        """None: the other side is gone."""
        while b"\n" not in self.pending:
            self._await(select.POLLIN)
            try:
                got = self.socket.recv(65536)
            except BlockingIOError:
                continue
            except ConnectionResetError:
                return None
            if not got or len(self.pending) > LINE_BYTES_MAX:
                return None
            self.pending += got
        line, _, self.pending = self.pending.partition(b"\n")
        return line

    def write(self, fields):
        text = json.dumps(fields, ensure_ascii=True).encode() + b"\n"
        if len(text) > LINE_BYTES_MAX:
            text = json.dumps({"id": fields["id"], "outcome": "failed", "text": "an answer of more than 1 MiB"}).encode() + b"\n"
        while text:
            try:
                text = text[self.socket.send(text, socket.MSG_NOSIGNAL) :]
            except BlockingIOError:
                self._await(select.POLLOUT)


NEEDS_DEVICE = re.compile(r"not compiled with CUDA|No CUDA GPUs|no NVIDIA driver|NVIDIA driver on your system|requires at least one CUDA device|nccl", re.IGNORECASE)


def failed(identity, error):
    if isinstance(error, (RuntimeError, AssertionError)) and NEEDS_DEVICE.search(str(error)):
        return {"id": identity, "outcome": "unsupported", "text": f"needs a device: {where.words_of(error)}"}
    frames = where.frames_of(error)
    return {"id": identity, "outcome": "failed", "text": where.words_of(error), "raised_at": frames}


def answer_to(identity, request, host):
    try:
        fields = host.handle(request["message"], request)
        return {**(fields or {}), "id": identity, "outcome": "ok"}
    except Unsupported as error:
        return {"id": identity, "outcome": "unsupported", "text": str(error)}
    except Refused as error:
        return {"id": identity, "outcome": "refused", "text": str(error)}
    except SystemExit:
        raise
    except BaseException as error:  # Of the subject: whatever it is, it is the answer.
        return failed(identity, error)


def serve(descriptor, host):
    """Until bye, or the end of the conversation. Returns the status to end with, and whether as a program ends."""
    lines = Lines(descriptor)
    process = os.getpid()
    while True:
        line = lines.read()
        if line is None:
            print("lockstep host: the conversation ended without bye", file=sys.__stderr__)
            return 1, False
        request = json.loads(line)
        identity = request["id"]
        if request["message"] == "bye":
            lines.write({"id": identity, "outcome": "ok"})
            return 0, bool(request.get("whole", False))
        reply = answer_to(identity, request, host)
        if os.getpid() != process:
            # The subject has forked, and its child came back here: the conversation is its parent's.
            os.write(2, b"lockstep host: a child that the subject had forked came back into the host, and ends here\n")
            os._exit(70)
        lines.write(reply)
        host.answered()
