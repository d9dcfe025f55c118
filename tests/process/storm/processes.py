"""Processes as seen from outside, and a place of their own for them."""

import ctypes
import fcntl
import os
import pathlib
import signal
import socket
import struct

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWNET = 0x20000, 0x8000000, 0x40000000
MS_REC_PRIVATE = 0x4000 | 0x40000
PR_SET_CHILD_SUBREAPER = 36


def read(path: str) -> bytes:
    try:
        return pathlib.Path(path).read_bytes()
    except OSError:
        return b""


class Seen:
    """One process at one instant."""

    def __init__(self, pid: int) -> None:
        stat = read(f"/proc/{pid}/stat").decode(errors="replace")
        fields = stat[stat.rfind(")") + 2:].split()
        self.pid, self.name = pid, stat[stat.find("(") + 1:stat.rfind(")")]
        self.state, self.parent, self.start = (fields[0], int(fields[1]), int(fields[19])) if fields else ("", 0, 0)
        self.words = read(f"/proc/{pid}/cmdline").decode(errors="replace").split("\0")

    @property
    def there(self) -> bool:
        return self.state != ""

    @property
    def id(self) -> tuple:
        return self.pid, self.start

    def variable(self, name: str) -> str:
        for entry in read(f"/proc/{self.pid}/environ").split(b"\0"):
            if entry.startswith(name.encode() + b"="):
                return entry[len(name) + 1:].decode(errors="replace")
        return ""

    def __str__(self) -> str:
        return f"{self.name} {self.pid} in state {self.state or 'gone'}"


def children(pid: int) -> list[int]:
    found = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += map(int, read(f"/proc/{pid}/task/{thread}/children").split())
    except OSError:
        pass
    return found


def descendants(pid: int) -> list[int]:
    found = children(pid)
    for each in found:  # Grows while it is walked.
        found += children(each)
    return found


def send(seen: Seen, number: int) -> bool:
    """Through a pidfd, and only if it is still the one that was seen."""
    try:
        pidfd = os.pidfd_open(seen.pid)
    except OSError:
        return False
    try:
        if Seen(seen.pid).id != seen.id:
            return False
        signal.pidfd_send_signal(pidfd, number)
        return True
    except OSError:
        return False
    finally:
        os.close(pidfd)


def adopt_orphans() -> None:
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def isolate() -> bool:
    """A network and a /dev/shm that nobody else uses, so that whatever is in them is the job's. Needs root."""
    if LIBC.unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC) != 0:
        return False
    if LIBC.mount(b"none", b"/", None, MS_REC_PRIVATE, None) != 0:
        return False
    if LIBC.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"mode=1777,size=4g") != 0:
        return False
    with socket.socket() as any_socket:  # ip link set lo up
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))
    return True


def listening() -> list[str]:
    found = []
    for table in ("tcp", "tcp6"):
        for line in read(f"/proc/self/net/{table}").decode().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                found.append(fields[1])
    return found
