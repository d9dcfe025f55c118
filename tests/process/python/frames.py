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
    while frame is not None and len(shown) < 64:
        code = frame.f_code
        shown.append(f"{code.co_filename}|{frame.f_lineno}|{code.co_qualname}")
        frame = frame.f_back
    return shown


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
    nested(30, lambda: print("cost", unlocked.probe_cost(), file=sys.stderr))


main()
