#!/usr/bin/env python3
"""300 jobs of `lockstep run`, one process of each hit at a random instant: afterwards nothing of it may be left. Then
the programs that will not end, or leave something behind, ten times each, five of them while all cores are busy.

Jobs 0 to 269 are trees without torch that do everything to get away, 270 to 299 train with torch; from 300 on all of
lockstep is killed at once, and `lockstep clean` has to find what is left. Of the others the victim is a rank, a child,
a launcher or one process of lockstep, and the signal KILL, TERM, STOP or SEGV. A share runs as another user, and a
share where lockstep is pid 1 of a namespace. What is looked at afterwards, from outside: processes, zombies, /dev/shm,
listening ports, temporary files, and a bystander tree of the same names that counts the signals it gets.

Resumable: what is done is kept in a file, and a call goes on where the last one stopped. Prints `N of M done` after
each job. One that failed runs again with --seed SEED --job NUMBER.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

TESTS = pathlib.Path(__file__).resolve().parents[1]
STORM = TESTS / "process" / "storm"
sys.path[:0] = [str(STORM), str(TESTS / "programs")]

import plans  # noqa: E402
import processes  # noqa: E402
import repeated  # noqa: E402
import storm  # noqa: E402

LIMIT_S = 240.0


def may_use(prefix: tuple, program: str) -> bool:
    """Whether a share of the jobs can run like this here."""
    commands = ((program, "--version"), (storm.python(), storm.TREE, "rank", '{"ranks": []}'))
    done = [subprocess.run([*prefix, *command], capture_output=True, stdin=subprocess.DEVNULL,
                           env={**os.environ, "RANK": "none"}) for command in commands]
    return done[0].returncode == 0 and b"invalid literal" in done[1].stderr


def run(seed: int, number: int, program: str, places: set) -> dict:
    place = plans.plan_of(seed, number).place
    command = [sys.executable, "-B", str(STORM / "storm.py"), str(seed), str(number), program]
    if place not in places:
        command.append("root")
    job = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        said, errors = job.communicate(timeout=LIMIT_S)
        return json.loads(said)
    except (ValueError, subprocess.TimeoutExpired) as failed:
        for pid in [*processes.descendants(job.pid), job.pid]:
            processes.send(processes.Seen(pid), signal.SIGKILL)
        if isinstance(failed, subprocess.TimeoutExpired):
            errors = f"no end after {LIMIT_S:.0f} s"
        return {"problems": [f"the storm itself failed: {errors[-2000:]}"], "plan": "", "struck": [], "gone_s": 0.0,
                "unproven": [], "cleaned": 0}


def numbers(options: argparse.Namespace) -> list[int]:
    if options.job is not None:
        return [options.job]
    if options.short:  # Every kind of victim, with and without rights.
        every = plans.WITHOUT_TORCH // options.short
        return [*range(0, plans.WITHOUT_TORCH, every)][:options.short] + [plans.JOBS - 1]
    return list(range(plans.JOBS))


def pieces() -> list[repeated.Piece]:
    return [repeated.Piece(row, 2, number) for number in range(10) for row in repeated.table.HOME]


def tell_totals(done: dict, todo: list[int]) -> bool:
    ran = {n: done[str(n)] for n in todo if str(n) in done}
    one, all_killed = ({n: r for n, r in ran.items() if (n >= plans.WITHOUT_TORCH + plans.WITH_TORCH) == last}
                       for last in (False, True))
    took = sorted(r["gone_s"] for r in one.values() if r["gone_s"])
    print(f"one victim: {len(one)} jobs, {sum(bool(r['struck']) for r in one.values())} hit before they were over, "
          f"{sum(r.get('asked', False) for r in one.values())} asked to end, "
          f"{sum(bool(r['problems']) for r in one.values())} with problems; after the death of one of lockstep's the "
          f"job was gone within {took[-1] if took else 0} s, in {sum(t > storm.GONE_S for t in took)} of {len(took)} "
          f"after more than {storm.GONE_S} s")
    print(f"all of lockstep killed: {len(all_killed)} jobs, {sum(r['cleaned'] for r in all_killed.values())} processes "
          f"left to `lockstep clean`, {sum(len(r['unproven']) for r in all_killed.values())} that nothing proves to be "
          f"of a job, {sum(bool(r['problems']) for r in all_killed.values())} jobs with problems")
    return not any(r["problems"] for r in ran.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="start no job after this")
    parser.add_argument("--again", action="store_true", help="forget what is done")
    parser.add_argument("--seed", type=int, default=6)
    parser.add_argument("--job", type=int, help="only this one, and keep nothing")
    parser.add_argument("--short", type=int, default=0, help="only so many, without torch, and keep nothing")
    parser.add_argument("--parallel", type=int, default=3 * (os.cpu_count() or 1), help="jobs at a time without torch")
    options = parser.parse_args()
    build = pathlib.Path(os.environ.get("LOCKSTEP_BUILD_DIR", "build")).resolve()
    program = os.environ.get("LOCKSTEP_PROGRAM", str(build / "bin" / "lockstep"))
    state = build / f"soak-exit-{options.seed}.json"
    keeps = options.job is None and not options.short
    done = json.loads(state.read_text()) if keeps and state.exists() and not options.again else {}
    places = {"root"} | {name for name, prefix in (("user", storm.AS_USER), ("pid1", storm.AS_PID1))
                         if may_use(prefix, program)}
    for name in sorted({"user", "pid1"} - places):
        print(f"skipped: the share that runs as {name} cannot here; it runs as root")
    todo, begun = numbers(options), time.monotonic()
    for torch in (False, True):
        left = [n for n in todo if str(n) not in done and plans.plan_of(options.seed, n).torch == torch]
        with concurrent.futures.ThreadPoolExecutor(max(1, options.parallel // 3) if torch else options.parallel) as pool:
            jobs = {pool.submit(lambda n: run(options.seed, n, program, places) if time.monotonic() - begun <
                                options.minutes * 60 else None, n): n for n in left}
            for job in concurrent.futures.as_completed(jobs):
                if job.result() is None:
                    continue
                number, result = jobs[job], job.result()
                done[str(number)] = result
                if keeps:
                    state.write_text(json.dumps(done))
                print(f"{sum(str(n) in done for n in todo)} of {len(todo)} done  --seed {options.seed} --job {number}: "
                      f"{result['plan']}: {'; '.join(result['problems']) or 'nothing left'}", flush=True)
                if result["problems"]:
                    print(json.dumps(result, indent=1), flush=True)
    right = tell_totals(done, todo)
    if keeps:
        options.minutes -= (time.monotonic() - begun) / 60
        right &= repeated.run(pieces(), options)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
