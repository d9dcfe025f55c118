"""Program of the Python hosts:

    python main.py --warm SUBJECT KIND              serves fork requests on descriptor 3
    python main.py --conversation FD SUBJECT KIND   one conversation, on a connected socket
"""

import importlib.util
import os
import sys


def load():
    """This folder as the package lockstep_subject, and the user's folder where the script's own was in sys.path."""
    here = os.path.dirname(os.path.abspath(__file__))
    if sys.path and os.path.abspath(sys.path[0]) == here:
        sys.path[0] = os.getcwd()
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    spec = importlib.util.spec_from_file_location(
        "lockstep_subject", os.path.join(here, "__init__.py"), submodule_search_locations=[here]
    )
    package = importlib.util.module_from_spec(spec)
    sys.modules["lockstep_subject"] = package
    spec.loader.exec_module(package)
    from lockstep_subject import host

    sys.dont_write_bytecode = before
    return host


def main(words):
    if len(words) == 3 and words[0] == "--warm":
        return load().warm(words[1], words[2])
    if len(words) == 4 and words[0] == "--conversation" and words[1].isdigit():
        return load().converse(int(words[1]), words[2], words[3])
    print(__doc__, file=sys.stderr)
    return 125


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
