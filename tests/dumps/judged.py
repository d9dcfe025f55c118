"""Simulated jobs, each judged by `lockstep check`: how often the rank that the fault is at is named, and whom else.

usage: judged.py LOCKSTEP [--runs N] [--healthy N] [--seed N] [--show]"""
import argparse
import collections
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import simulate

# Who is at fault does not show in what is dumped: the rank is not there, nobody is, or nothing tells of its device.
UNNAMED = {"no dump of the stuck", "cut network"}


def check(lockstep, folder):
    done = subprocess.run([lockstep, "check", folder, "--format", "json"], capture_output=True, text=True, timeout=120)
    if done.returncode not in (0, 1, 2):
        raise SystemExit(f"{folder}: status {done.returncode}: {done.stderr}{done.stdout}")
    return done.returncode, json.loads(done.stdout)


def named(report):
    return {rank for finding in report["findings"] for rank in finding["culprits"]}


def verdict(job, status, report):
    """right, unnamed, missed or innocent."""
    culprits = named(report)
    if job.healthy:
        return "right" if status == 0 and not report["findings"] else "innocent"
    if culprits - {job.culprit}:
        return "innocent"
    if culprits:
        return "right"
    shown = job.fault in UNNAMED or (job.fault == "stuck device" and job.flavour != "nccl")
    if shown:
        return "right" if status in (1, 2) else "missed"
    return "unnamed" if report["findings"] else "missed"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lockstep")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--healthy", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    work = tempfile.mkdtemp(prefix="lockstep-dumps-")
    counts = collections.Counter()
    by_fault = collections.defaultdict(collections.Counter)
    for i in range(options.runs + options.healthy):
        job = simulate.Job(options.seed * 100_000 + i, healthy=i >= options.runs)
        job.run()
        folder = os.path.join(work, str(i))
        job.write(folder, as_json=i % 8 == 7)
        status, report = check(options.lockstep, folder)
        result = verdict(job, status, report)
        counts["healthy" if job.healthy else "broken", result] += 1
        by_fault[job.fault][result] += 1
        if options.show and result != "right":
            print(i, result, job.label(), f"ahead {job.ahead}, {job.flavour}, ring {job.ring}", status,
                  [(f["code"], sorted(f["culprits"]), f["headline"]) for f in report["findings"]], report.get("reason"))
        shutil.rmtree(folder)
    shutil.rmtree(work)
    for fault, results in sorted(by_fault.items(), key=str):
        print(f"{str(fault):24} {dict(results)}")
    print(dict(counts))
    right, broken = counts["broken", "right"], sum(n for (kind, _), n in counts.items() if kind == "broken")
    bad = counts["broken", "innocent"] + counts["healthy", "innocent"]
    return 0 if bad == 0 and 100 * right >= 99 * broken else 1


if __name__ == "__main__":
    sys.exit(main())
