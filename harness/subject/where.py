"""Where an exception was raised, for people and for the report: the user's line first."""

import os
import sys
import sysconfig
import traceback

import torch

HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
LIBRARIES = tuple(os.path.realpath(path) + os.sep for path in (sysconfig.get_path("stdlib"), os.path.dirname(torch.__file__)))
INSTALLED = os.path.realpath(sysconfig.get_path("purelib")) + os.sep
FRAMES_MAX = 32


def is_of_user(path):
    real = os.path.realpath(path)
    of_library = real.startswith(LIBRARIES) and not (real.startswith(INSTALLED) and not real.startswith(LIBRARIES[1]))
    return not path.startswith((HERE, "<")) and not of_library


def steps_of(error):
    """Innermost first."""
    return list(reversed(traceback.extract_tb(error.__traceback__)))


def frames_of(error):
    return [
        {"module": os.path.realpath(step.filename), "offset": step.lineno or 0, "line": step.lineno or 0, "function": step.name}
        for step in steps_of(error)
        if not step.filename.startswith(HERE)
    ][:FRAMES_MAX]


def user_line_of(error):
    """"file.py:12 in forward", of the innermost frame in the user's own code; empty if there is none."""
    for step in steps_of(error):
        if is_of_user(step.filename):
            return f"{step.filename}:{step.lineno} in {step.name}"
    return ""


def words_of(error):
    text = "".join(traceback.format_exception_only(type(error), error)).strip()
    line = user_line_of(error)
    traceback.print_exception(type(error), error, error.__traceback__, file=sys.__stderr__)
    sys.__stderr__.flush()
    return f"{text}\n{line}" if line else text
