"""Says what a rank finds around itself, after it has used its group: for a run with the tap to be held against one without."""

import glob
import locale
import os
import re
import resource
import subprocess
import sys
import time

import torch
import torch.distributed as dist

OURS = re.compile(r"LD_PRELOAD$|LOCKSTEP_")
STATUS = re.compile(r"(Sig\w+|Shd\w+|Cap\w+|NoNewPrivs|Seccomp|Umask|Threads|TracerPid|Cpus_allowed_list)$")


def say(name, value):
    print(f"{name}: {value}", flush=True)


def descriptors():
    """Beyond the standard ones without their number: threads of torch open them, and which is first is a matter of time."""
    for name in sorted(os.listdir("/proc/self/fd"), key=int):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        yield int(name) if int(name) < 3 else 3, re.sub(r"\d{3,}|rendezvous.*|/tmp/\S*", "N", target)


def thread_names():
    """Once all have theirs: a thread gives itself its name after it has started."""
    seen = []
    for _ in range(300):
        seen.append(sorted(open(path).read().strip() for path in glob.glob("/proc/self/task/*/comm")))
        if len(seen) >= 10 and all(names == seen[-1] for names in seen[-10:]):
            break
        time.sleep(0.1)
    return seen[-1]


def main():
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(2))
    for name in sorted(os.environ):
        if not OURS.match(name) and name != "MASTER_PORT":
            say(f"environment {name}", os.environ[name])
    for name, target in sorted(descriptors()):
        say(f"descriptor {name}", target)
    for line in open("/proc/self/status"):
        name, value = line.split(":", 1)
        if name == "SigQ":  # Of all processes of the user; the limit behind it is this one's.
            value = value.split("/")[1]
        if STATUS.match(name):
            say(name, value.split())
    for name in dir(resource):
        if name.startswith("RLIMIT_"):
            say(name, resource.getrlimit(getattr(resource, name)))
    say("flags", sys.flags)
    say("path", sys.path)
    say("modules", len(sys.modules))
    say("locale", locale.setlocale(locale.LC_ALL))
    say("terminal", [os.isatty(i) for i in range(3)])
    say("arguments", sys.orig_argv[1:-1])
    say("children", glob.glob(f"/proc/self/task/*/children") and open(f"/proc/self/task/{os.getpid()}/children").read())
    say("trace", (sys.gettrace(), sys.getprofile()))
    say("threads", thread_names())
    say("a shell says", subprocess.run(["sh", "-c", "echo $0; ulimit -a; umask"], capture_output=True, text=True).stdout)
    dist.destroy_process_group()
    sys.exit(5)


main()
