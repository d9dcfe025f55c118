#!/usr/bin/env python3
"""Ready taps for the wheel: one for each release of torch that is supported, compiled against the headers of its wheel.

    ready_taps.py LOCKSTEP CACHE INTO

LOCKSTEP compiles them. The headers come from PyPI by pip, into CACHE; of the libraries stand-ins are enough, since what
the tap needs of them is resolved when it is loaded.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

RELEASES = ("2.11.0", "2.12.0", "2.13.0", "2.14.0", "2.15.0")
LIBRARIES = ("torch_cpu", "c10")


def headers_of(release: str, cache: pathlib.Path) -> pathlib.Path:
    """The folder that holds include/, version.py and lib/ with stand-ins."""
    root = cache / f"torch-headers-{release}"
    if root.exists():
        return root
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
                        "--dest", scratch, f"torch=={release}"], check=True)
        (wheel,) = pathlib.Path(scratch).glob("torch-*.whl")
        unpacked = pathlib.Path(scratch) / "unpacked"
        with zipfile.ZipFile(wheel) as archive:
            wanted = [name for name in archive.namelist() if name.startswith("torch/include/") or name == "torch/version.py"]
            archive.extractall(unpacked, wanted)
        lib = unpacked / "torch" / "lib"
        lib.mkdir()
        for name in LIBRARIES:
            subprocess.run(["g++", "-shared", "-x", "c", "/dev/null", f"-Wl,-soname,lib{name}.so", "-o", lib / f"lib{name}.so"],
                           check=True)
        shutil.move(unpacked / "torch", root)
    return root


def main(lockstep: str, cache: str, into: str) -> int:
    shutil.rmtree(into, ignore_errors=True)
    for release in RELEASES:
        root = headers_of(release, pathlib.Path(cache))
        subprocess.run([lockstep, "tap", "build", "--torch", root, "--into", into], check=True)
    for library in pathlib.Path(into).rglob("*.so"):
        subprocess.run(["strip", library], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
