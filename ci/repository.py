"""Files of the repository, for the checks beside this file. Standard library only."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def files(*suffixes: str) -> list[str]:
    """Tracked files and new ones that git does not ignore, relative to the root, with one of the suffixes."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split("\0")
    return sorted(
        {name for name in listed if name and (ROOT / name).is_file() and name.endswith(suffixes or ("",))}
    )


def finish(name: str, problems: list[str], examined: str) -> None:
    """Prints the problems, then one line with the result; ends the process with 1 if there are any."""
    for problem in problems:
        print(problem)
    print(f"{name}: {len(problems)} problems in {examined}" if problems else f"{name}: ok, {examined}")
    sys.exit(1 if problems else 0)
