"""Calls the probe from stacks of many shapes; prints what the interpreter says of each, to be compared with the history.

usage: frames.py PROBE DIRECTORY. One line per call: SITE, then "file|line|function" of each frame, innermost first.
"""

import ctypes
import sys
import threading

unlocked = ctypes.CDLL(sys.argv[1])
locked = ctypes.PyDLL(sys.argv[1])
unlocked.probe_cost.restype = ctypes.c_double


def stack(frame):
    shown = []
    while frame is not None:
        code = frame.f_code
        shown.append(f"{code.co_filename}|{frame.f_lineno}|{code.co_qualname}")
        frame = frame.f_back
    return shown if len(shown) <= 64 else shown[:63] + shown[-1:]


def call():
    site, shown = unlocked.probe_site(), stack(sys._getframe())
    print(site, *shown, sep="\t", flush=True)


def nested(depth, then=call):
    return then() if depth == 0 else nested(depth - 1, then)


def generator():
    yield call()


class Method:
    def of_a_class(self):
        with open(sys.argv[0]) as _:
            return [(
                call()
            ) for _ in range(2)]


def handler():
    try:
        raise ValueError
    except ValueError:
        call()


async def coroutine():
    call()


def generated():
    """Code that comes and goes: the same addresses hold another function each time."""
    for name in ("step_1", "step_2", "step_3", "step_4"):
        scope = {"call": call}
        exec(f"def {name}():\n    call()\n", scope)
        scope[name]()
        del scope


THEN = ctypes.CFUNCTYPE(ctypes.c_uint)


def _engine_run_backward(then=None, name="pt_autograd_0", number=1):
    """As autograd's: the main thread waits in it for what other threads do."""
    return unlocked.probe_site_of_thread(name.encode(), number, then or THEN()), stack(sys._getframe())


def in_a_hook(file):
    """A function of this file that a thread of PyTorch's calls, and the frames it has of its own."""
    scope = {"probe": unlocked.probe_site, "stack": stack, "frame": sys._getframe}
    exec(compile("def hook():\n  global own\n  own = stack(frame()); return probe()\n", file, "exec"), scope)
    return THEN(scope["hook"]), scope


def on_behalf_of_main():
    site, shown = _engine_run_backward()
    print(site, *shown, sep="\t", flush=True)
    then, scope = in_a_hook("/lib/site-packages/torch/distributed/fsdp.py")
    site, shown = nested(3, lambda: _engine_run_backward(then))
    print(site, *scope["own"], *shown, sep="\t", flush=True)
    site, shown = nested(100, lambda: _engine_run_backward(then, "pt_gloo_runloop", -1))
    print(site, *scope["own"], *shown[:62], shown[-1], sep="\t", flush=True)
    then, scope = in_a_hook("/programs/train.py")
    site, _ = _engine_run_backward(then)
    print(site, *scope["own"], sep="\t", flush=True)
    assert _engine_run_backward(None, "worker", -1)[0] == 0  # For nobody.
    assert unlocked.probe_site_of_thread(b"pt_autograd_0", 1, THEN()) == 0  # Main is elsewhere.
    sites = []
    thread = threading.Thread(target=lambda: sites.append(_engine_run_backward()[0]))
    thread.start()
    thread.join()
    assert sites == [0]  # Not for main.


def main():
    if locked.probe_begin(sys.argv[2].encode()) != 1:
        sys.exit("unknown interpreter")
    call()
    nested(3)
    nested(3)
    nested(100)
    list(generator())
    Method().of_a_class()
    handler()
    try:
        coroutine().send(None)
    except StopIteration:
        pass
    generated()
    sorted([2, 1], key=lambda _: call() or 0)
    exec(compile("def f():\n\n  g()\n", "größe/日本/\U0001f600.py", "exec"), scope := {"g": call})
    scope["f"]()
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    on_behalf_of_main()
    nested(30, lambda: print("cost", unlocked.probe_cost(), file=sys.stderr))


main()
