"""A fault that a scenario asks a host for: it raises, exits, is killed, is stopped or sleeps, now or at the next such
moment. As fixtures/rank_host/fault.cc."""

import os
import signal
import threading
import time

from .lines import Unsupported

KINDS = ("raise", "exit", "kill", "stop", "sleep")
MOMENTS = ("now", "init", "forward", "backward", "collective", "teardown")


class Fault:
    def __init__(self):
        self.asked = None

    def ask_for(self, request):
        kind, moment = request["kind"], request.get("at", "now")
        if kind not in KINDS:
            raise Unsupported(f"this host has no fault {kind}")
        if moment not in MOMENTS or (moment == "collective" and kind == "sleep"):
            raise Unsupported(f"no {kind} happens at {moment} in this host")
        self.asked = {"kind": kind, "at": moment, "status": request.get("status", 1), "seconds": request.get("seconds", 0)}

    def _take(self, moment):
        if self.asked is None or self.asked["at"] != moment:
            return None
        asked, self.asked = self.asked, None
        return asked

    def strike(self, moment):
        asked = self._take(moment)
        if asked is not None:
            happen(asked)

    def strike_soon(self):
        """Backward is about to begin: what is to happen in a collective comes from another thread, while this one waits."""
        asked = self._take("collective")
        if asked is not None:
            threading.Thread(target=lambda: (time.sleep(asked["seconds"]), happen(asked)), daemon=True).start()


def happen(fault):
    if fault["kind"] == "raise":
        raise RuntimeError("the fault that was asked for")
    if fault["kind"] == "exit":
        os._exit(fault["status"])
    if fault["kind"] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault["kind"] == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if fault["kind"] == "sleep":
        time.sleep(fault["seconds"])
