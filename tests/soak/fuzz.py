#!/usr/bin/env python3
"""The fuzzers of the readers for long: ten million executions, then which lines of the readers they reached.

Most of them on a ring that is being written while it is read, the others on files of every kind. Pieces of 100,000,
which keep their corpus in the build folder. Resumable: a call goes on where the last one stopped.
Prints `N of M done` after each piece. Coverage is measured in a replay of the corpus, not while fuzzing.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
FUZZERS, PIECE = {"fuzz_live": 8_000_000, "fuzz_reader": 2_000_000}, 100_000
EXECUTIONS = sum(FUZZERS.values())
READERS = [f"harness/history/{name}.cc" for name in ("reader", "reader_records", "journal_read")]
OPTIONS = ("-max_len=8192", "-timeout=20", "-rss_limit_mb=2048", "-print_final_stats=1", "-verbosity=0")
COVERED_MIN = 95.0  # Percent of the lines of each. (tensor_file.cc, fuzzed too, also writes: its figure says little.)


def fuzz(build: pathlib.Path, name: str) -> dict:
    begun = time.monotonic()
    done = subprocess.run([str(build / "fuzz" / "bin" / name), f"-runs={PIECE}", *OPTIONS,
                           f"-artifact_prefix={build}/fuzz/{name}-", str(build / "fuzz" / "corpus" / name)],
                          env={**os.environ, "ASAN_OPTIONS": "quarantine_size_mb=16"},
                          capture_output=True, text=True, stdin=subprocess.DEVNULL)
    executed = re.search(r"number_of_executed_units: (\d+)", done.stderr)
    if done.returncode != 0 or executed is None:
        raise SystemExit(f"{name} ended with {done.returncode}; its input, if one is to blame, is in {build}/fuzz\n"
                         f"{done.stderr[-6000:]}")
    return {"executions": int(executed[1]), "wall_s": time.monotonic() - begun}


def line_coverage(build: pathlib.Path) -> dict:
    """Percent of the lines of each reader that the corpora reach."""
    coverage, programs = build / "fuzz" / "coverage", []
    flags = "-fprofile-instr-generate -fcoverage-mapping"
    subprocess.run(["cmake", "--preset", "fuzz", "-B", str(coverage), "-DLOCKSTEP_SANITIZE=",
                    "-DCMAKE_BUILD_TYPE=Debug", f"-DCMAKE_CXX_FLAGS={flags}"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", str(coverage), "fuzzers"], check=True, stdout=subprocess.DEVNULL)
    for name in FUZZERS:
        programs.append(str(coverage / "bin" / name))
        subprocess.run([programs[-1], "-runs=0", "-verbosity=0", str(build / "fuzz" / "corpus" / name),
                        str(build / "fuzz" / "seeds" / name)], check=True,
                       env={**os.environ, "LLVM_PROFILE_FILE": str(coverage / f"{name}.profraw")})
    merged = str(coverage / "fuzz.profdata")
    subprocess.run(["llvm-profdata-14", "merge", "-o", merged, *map(str, coverage.glob("*.profraw"))], check=True)
    exported = subprocess.run(["llvm-cov-14", "export", "-summary-only", programs[0], "-object", programs[1],
                               f"-instr-profile={merged}"], check=True, capture_output=True, cwd=ROOT)
    files = json.loads(exported.stdout)["data"][0]["files"]
    return {reader: file["summary"]["lines"]["percent"] for reader in READERS
            for file in files if file["filename"].endswith(reader)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="stop after the piece in which this is reached")
    parser.add_argument("--again", action="store_true", help="forget what is done; the corpus stays")
    options = parser.parse_args()
    build = pathlib.Path(os.environ.get("LOCKSTEP_BUILD_DIR", "build")).resolve()
    state = build / "soak-fuzz.json"
    done = {} if options.again or not state.exists() else json.loads(state.read_text())
    # Builds, writes the seeds, and begins the corpora with them.
    subprocess.run([str(ROOT / "ci/dev"), "fuzz", "1000"], check=True, stderr=subprocess.DEVNULL)
    begun = time.monotonic()
    for name, wanted in FUZZERS.items():
        total = done.setdefault(name, {"executions": 0, "wall_s": 0.0})
        while total["executions"] < wanted and time.monotonic() - begun < options.minutes * 60:
            for key, value in fuzz(build, name).items():
                total[key] += value
            state.write_text(json.dumps(done))
            print(f"{sum(each['executions'] for each in done.values())} of {EXECUTIONS} done  "
                  f"{name}: {total['executions'] / total['wall_s']:.0f} a second", flush=True)
    covered = line_coverage(build)
    for reader in READERS:
        print(f"{covered[reader]:5.1f} % of the lines of {reader}")
    finished = sum(each["executions"] for each in done.values()) >= EXECUTIONS
    return 1 if finished and min(covered.values()) < COVERED_MIN else 0


if __name__ == "__main__":
    sys.exit(main())
