"""clang-tidy over the sources that build without LibTorch. A clean file is remembered until it, a header it reaches,
the configuration or the tool changes, so repeated runs only pay for what changed."""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

import repository

LINTED = ("harness/", "checkers/", "scenarios/")
INCLUDE = re.compile(rb'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def reached(path: str, seen: dict[str, bytes]) -> dict[str, bytes]:
    """The file and the headers of ours that it reaches, with their contents."""
    if path not in seen and (repository.ROOT / path).is_file():
        seen[path] = (repository.ROOT / path).read_bytes()
        for name in INCLUDE.findall(seen[path]):
            reached(name.decode(), seen)
    return seen


def main() -> None:
    tidy, build, cache, jobs = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]), int(sys.argv[4])
    cache.mkdir(parents=True, exist_ok=True)
    common = hashlib.sha256((repository.ROOT / ".clang-tidy").read_bytes())
    common.update(subprocess.run([tidy, "--version"], check=True, capture_output=True).stdout)
    stamps = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = os.path.relpath(os.path.join(entry["directory"], entry["file"]), repository.ROOT)
        if not path.startswith(LINTED):
            continue
        digest = common.copy()
        digest.update(entry["command"].replace(str(repository.ROOT), "").encode())
        for name, content in sorted(reached(path, {}).items()):
            digest.update(name.encode() + b"\0" + content)
        stamps.setdefault(path, cache / digest.hexdigest())

    def lint(path: str) -> tuple[str, str]:
        # Warnings of the compiler are gcc's business; its words come from clang's point of view here.
        done = subprocess.run(
            [tidy, "-p", str(build), "--quiet", "--extra-arg=-Wno-error", str(repository.ROOT / path)],
            capture_output=True, text=True, stdin=subprocess.DEVNULL,
        )
        if done.returncode == 0:
            stamps[path].touch()
            return path, ""
        return path, (done.stdout.strip() or done.stderr.strip()).replace(f"{repository.ROOT}/", "")

    pending = [path for path, stamp in sorted(stamps.items()) if not stamp.exists()]
    problems = []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for path, output in pool.map(lint, pending):
            if output:
                problems.append(f"{path}:\n{output}")
    repository.finish("lint", problems, f"{len(stamps)} files, {len(pending)} of them not linted before")


if __name__ == "__main__":
    main()
