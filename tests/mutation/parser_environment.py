"""The parser that mutations are found with, in a virtual environment of the tool's own: made once, in the user's cache.

Importing this starts the program anew with that environment's interpreter where there is no parser here. Without a way to
install one the program ends with status 77: skipped.
"""

import contextlib
import importlib.util
import os
import pathlib
import subprocess
import sys
import venv

PACKAGES = ("tree-sitter==0.26.1", "tree-sitter-cpp==0.23.4")
READY = importlib.util.find_spec("tree_sitter_cpp") is not None

if not READY:
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "lockstep"
    python = cache / "mutate-venv/bin/python"
    if pathlib.Path(sys.prefix) == python.parent.parent:
        subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=False)
        READY = importlib.util.find_spec("tree_sitter_cpp") is not None
    else:
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            if not python.exists():
                venv.create(python.parent.parent, with_pip=True)
            os.execv(python, [str(python), "-B", *sys.argv])

if not READY:
    print("skipped: the packages " + ", ".join(PACKAGES) + " cannot be installed", file=sys.stderr)
    sys.exit(77)
