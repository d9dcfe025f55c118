#!/usr/bin/env python3
"""Installs a wheel of lockstep into an empty virtual environment with the torch of this interpreter, and uses it where PATH
has no compiler: a program that hangs, check, explain, a pytest project, a CMake project.

    try_wheel.py WHEEL
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

SIZE_MAX = 12 << 20
TOOLS = ("bash", "sh", "env", "cat", "uname")  # All that is in PATH beside the virtual environment.
HANGS = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 0:
    dist.all_reduce(torch.ones(3))
else:
    dist.barrier()
"""
TESTS = """
import os
import pytest

@pytest.mark.world_size(2)
def test_passes():
    assert os.environ["WORLD_SIZE"] == "2"
"""
CMAKE = """
cmake_minimum_required(VERSION 3.25)
project(user NONE)
enable_testing()
find_package(Lockstep REQUIRED)
lockstep_add_test(NAME passes RANKS 2 COMMAND true)
lockstep_add_test(NAME fails RANKS 2 COMMAND false)
lockstep_add_test(NAME sleeps RANKS 2 TIMEOUT 10 COMMAND sleep 600)
"""


def main(wheel: str) -> int:
    size = os.path.getsize(wheel)
    assert size <= SIZE_MAX, f"{wheel} has {size} bytes, at most {SIZE_MAX}"
    with tempfile.TemporaryDirectory(prefix="lockstep-wheel-") as scratch:
        folder = pathlib.Path(scratch)
        begun = time.monotonic()
        environment = install(wheel, folder)
        print(f"{os.path.basename(wheel)}: {size / 1e6:.1f} MB, installed in {time.monotonic() - begun:.1f} s")

        def lockstep(*arguments: str, status: int) -> str:
            begun = time.monotonic()
            done = subprocess.run(["lockstep", *arguments], cwd=folder, env=environment, text=True, capture_output=True)
            print(f"lockstep {' '.join(arguments)}: status {done.returncode}, {time.monotonic() - begun:.1f} s")
            assert done.returncode == status, done.stdout + done.stderr
            return done.stdout + done.stderr

        (folder / "hangs.py").write_text(HANGS)
        said = lockstep("run", "-n", "2", "--run-dir", "run", "--", "python", "hangs.py", status=1)
        assert "error[LS201]" in said and "hangs.py:6" in said and "building the tap" not in said, said
        lockstep("check", "run", "--format", "sarif", status=1)
        lockstep("explain", "LS201", status=0)
        (folder / "test_it.py").write_text(TESTS)
        subprocess.run(["python", "-m", "pytest", "-q", "test_it.py"], cwd=folder, env=environment, check=True)
        if shutil.which("ctest"):
            ctest(folder)
    return 0


def install(wheel: str, folder: pathlib.Path) -> dict:
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    (site,) = (folder / "venv" / "lib").glob("python3*/site-packages")
    import torch  # pylint: disable=import-outside-toplevel
    (site / "torch.pth").write_text(str(pathlib.Path(torch.__file__).parents[1]))
    subprocess.run([folder / "venv/bin/python", "-m", "pip", "install", "-q", "--no-deps", wheel], check=True)
    (folder / "tools").mkdir()
    for tool in TOOLS:
        os.symlink(shutil.which(tool), folder / "tools" / tool)
    return {"HOME": str(folder), "PATH": f"{folder}/venv/bin:{folder}/tools"}


def ctest(folder: pathlib.Path) -> None:
    (folder / "CMakeLists.txt").write_text(CMAKE)
    build = folder / "build"
    subprocess.run(["cmake", "-S", folder, "-B", build, f"-DCMAKE_PREFIX_PATH={folder}/venv"], check=True, capture_output=True)
    done = subprocess.run(["ctest", "--test-dir", build, "-j", "4"], text=True, capture_output=True)
    for line in ("passes ...........................   Passed", "fails ............................***Failed",
                 "sleeps ...........................***Failed"):
        assert line in done.stdout, done.stdout
    print("ctest: one passes, one fails, one ends at its limit")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
