"""One job of the storm: it runs beside a bystander, one of its processes is hit, and then nothing of it may be left.

Run as a process of its own, which takes over what loses its parent: so nothing can get away unseen.
  storm.py SEED NUMBER PROGRAM [root]    prints one JSON object; "root": not as another user, nor as pid 1
"""

import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import processes
from plans import Plan, plan_of
from processes import Seen

TREE = str(pathlib.Path(__file__).with_name("tree.py"))
TORCH_PROGRAM = str(pathlib.Path(__file__).with_name("steps.py"))
BYSTANDERS = 6  # Below the first of them.
PAUSE_S, STOPPED_S = 0.05, 5.0
GONE_S = 3.0  # What lockstep promises when one of its own is killed ...
LATE_S = 10.0  # ... and when it has failed, however busy the machine is.
END_S = 90.0
PATIENCE_S = 20.0
NOBODY = 65534
AS_USER = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
AS_PID1 = ("unshare", "--pid", "--fork", "--mount-proc")
RANK_CODES = ("LS101", "LS102", "LS2", "LS3")  # Whoever these name was hit by us, or is innocent.
STATUSES = {0, 1, 2, 3, 130}


def python() -> str:
    """One that another user may run, too, where there is one."""
    return next(path for path in ("/usr/bin/python3", sys.executable) if os.access(path, os.X_OK))


class Storm:
    def __init__(self, plan: Plan, program: str) -> None:
        self.plan, self.program, self.victim = plan, program, plan.victim
        self.problems: list[str] = []
        self.adopted: list[str] = []
        self.struck: list[Seen] = []
        self.roles: dict[int, str] = {}
        self.job_gone = self.struck_at = 0.0
        self.prefix = {"user": AS_USER, "pid1": AS_PID1}.get(plan.place, ())
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-storm-"))
        self.home, self.run_directory = self.scratch / "home", self.scratch / "place" / "run"
        self.environment = {**os.environ, "TMPDIR": str(self.home), "PYTHONDONTWRITEBYTECODE": "1"}
        for folder in (self.home, self.run_directory.parent):
            folder.mkdir()
        if plan.place == "user":
            self.environment["HOME"] = str(self.home)
            for folder in (self.scratch, self.home, self.run_directory.parent):
                os.chown(folder, NOBODY, NOBODY)

    # ------------------------------------------------------------------------------------------ beside it

    def start_bystander(self) -> None:
        command = (*(AS_USER if self.plan.place == "user" else ()), python(), TREE, "bystander")
        self.bystander = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                          stderr=subprocess.DEVNULL, env=self.environment)
        assert self.bystander.stdout.readline() == b"ready\n"
        while len(processes.descendants(self.bystander.pid)) < BYSTANDERS:
            time.sleep(PAUSE_S)
        self.beside = [Seen(pid) for pid in (self.bystander.pid, *processes.descendants(self.bystander.pid))]

    def check_bystander(self) -> None:
        for before in self.beside:
            now = Seen(before.pid)
            if now.id != before.id or now.state in "TtZX":
                self.problems.append(f"a bystander was touched: {before}, now {now}")
        self.bystander.stdin.close()
        counts = self.bystander.stdout.readline()
        if not counts or any(json.loads(counts)):
            self.problems.append(f"bystanders got signals: {counts.decode()}")
        for before in self.beside:
            processes.send(before, signal.SIGKILL)
        self.bystander.wait()

    # ------------------------------------------------------------------------------------------ the job

    def command(self) -> list[str]:
        plan = json.dumps({"ranks": self.plan.ranks})
        if self.plan.torch:
            launch = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={len(self.plan.ranks)}")
            words = [os.environ["LOCKSTEP_PYTHON"], *(launch if self.plan.launcher else ()), TORCH_PROGRAM]
        elif self.plan.launcher == "sh":
            loop = " ".join(f"RANK={rank} {python()} {TREE} rank '{plan}' &" for rank in range(len(self.plan.ranks)))
            words = ["sh", "-c", f"export WORLD_SIZE={len(self.plan.ranks)}; {loop} wait", "launcher"]
        else:
            words = [python(), TREE, "launcher" if self.plan.launcher else "rank", plan]
        ranks = () if self.plan.launcher else ("-n", str(len(self.plan.ranks)))
        return [*self.prefix, self.program, "run", "--run-dir", str(self.run_directory), *ranks, "--", *words]

    def start(self) -> None:
        self.begun = time.monotonic()
        with open(self.scratch / "said", "wb") as said:
            self.main = subprocess.Popen(self.command(), cwd=self.home, env=self.environment,
                                         stdin=subprocess.DEVNULL, stdout=said, stderr=said)

    def guard(self) -> int:
        return next(iter(processes.children(self.main.pid)), 0) if self.plan.place == "pid1" else self.main.pid

    def look(self) -> dict[str, list[Seen]]:
        """Who is who now. A rank is the oldest that was told its number; what still runs lockstep's image (its helpers,
        and what it has forked and not yet become somebody), or has no words while it is in exec, is nobody's victim."""
        found: dict[str, list[Seen]] = {}
        guard = self.guard()
        supervisor = next((p for p in processes.children(guard) if Seen(p).name == "lockstep"), 0)
        told: dict[str, Seen] = {}
        for seen in sorted(map(Seen, processes.descendants(guard)), key=lambda one: one.id[::-1]):
            rank, job = seen.variable("RANK"), seen.variable("LOCKSTEP_JOB")
            if seen.state in ("", "Z") or seen.name == "lockstep" or not any(seen.words):
                continue
            if rank and rank not in told:
                told[rank] = seen
                found.setdefault("rank", []).append(seen)
            elif rank or not job:
                found.setdefault("child", []).append(seen)
            elif any("launcher" in word or word == "torch.distributed.run" for word in seen.words):
                found.setdefault("launcher", []).append(seen)
        for role, pid in (("guard", guard), ("supervisor", supervisor)):
            if pid and Seen(pid).name == "lockstep":
                found[role] = [Seen(pid)]
        self.rank_of = {seen.pid: int(rank) for rank, seen in told.items()}
        return found

    def strike(self) -> None:
        time.sleep(max(0.0, self.begun + self.plan.instant_s - time.monotonic()))
        deadline = time.monotonic() + 1.0
        while self.main.poll() is None and not self.struck:
            found = self.look()
            if time.monotonic() > deadline:  # There is none of these (any more).
                self.victim = next(role for role in ("rank", "supervisor", "guard", self.victim) if role in found)
            victims = found.get(self.victim, [])[-(self.plan.number % 2):][:1]
            if self.victim == "all":
                victims = found["guard"] + found["supervisor"] if {"guard", "supervisor"} <= found.keys() else []
            # (The kernel may have taken the second along with the first.)
            if any([processes.send(victim, self.plan.signal) for victim in victims]):
                self.struck, self.struck_at = victims, time.monotonic()
                self.lockstep_pids = {seen.pid for role in ("guard", "supervisor") for seen in found.get(role, [])}
            time.sleep(PAUSE_S)

    def after_stop(self) -> None:
        if not self.struck or self.plan.signal != signal.SIGSTOP:
            return
        time.sleep(STOPPED_S)
        if self.plan.then == "continue" or self.victim in ("guard", "supervisor"):
            processes.send(self.struck[0], signal.SIGCONT)
        else:
            processes.send(Seen(self.guard()), signal.SIGINT)

    # ------------------------------------------------------------------------------------------ its end

    def strangers(self) -> list[int]:
        """What is left of the job: every descendant of ours but the bystanders."""
        beside = {self.bystander.pid, *processes.descendants(self.bystander.pid)}
        return [pid for pid in processes.descendants(os.getpid()) if pid not in beside]

    def reap_adopted(self) -> None:
        for pid in processes.children(os.getpid()):
            seen = Seen(pid)
            if pid in (self.main.pid, self.bystander.pid) or seen.state != "Z":
                continue
            os.waitpid(pid, 0)
            if pid not in getattr(self, "lockstep_pids", ()):
                self.adopted.append(str(seen))

    def wait_for_end(self, limit_s: float) -> bool:
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            ended = self.main.poll() is not None
            self.reap_adopted()
            left = self.strangers()
            if not self.job_gone and self.struck and not set(left) - self.lockstep_pids - {self.main.pid}:
                self.job_gone = time.monotonic()
            if ended and not left:
                return True
            time.sleep(PAUSE_S)
        return False

    def clean(self) -> None:
        """All of lockstep is dead: the next one finds and ends what can be proven to be of that job."""
        self.main.wait()
        time.sleep(0.3)
        self.reap_adopted()
        self.unproven = []
        for seen in map(Seen, self.strangers()):
            if seen.there and seen.state != "Z" and not seen.variable("LOCKSTEP_JOB"):
                self.unproven.append(str(seen))
                processes.send(seen, signal.SIGKILL)
        self.before_clean = len([pid for pid in self.strangers() if Seen(pid).state not in ("", "Z")])
        self.adopted.clear()
        prefix = AS_USER if self.plan.place == "user" else ()
        done = subprocess.run([*prefix, self.program, "clean", str(self.run_directory)], env=self.environment, cwd=self.home,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=END_S)
        self.adopted.clear()
        if done.returncode != 0:
            self.problems.append(f"clean: status {done.returncode}: {(done.stdout + done.stderr).decode()[-500:]}")

    # ------------------------------------------------------------------------------------------ what is left

    def check_left(self) -> None:
        left = [str(Seen(pid)) for pid in self.strangers() if Seen(pid).there]
        if left:
            self.problems.append(f"left: {left}")
            for pid in self.strangers():
                os.kill(pid, signal.SIGKILL)
        # Who loses its parent goes to lockstep. What comes to us was let go.
        if self.adopted and self.victim != "all" and self.plan.place != "pid1":
            self.problems.append(f"not reaped by lockstep: {self.adopted}")
        shared = [name for name in os.listdir("/dev/shm") if self.isolated or name in self.shared_names()]
        if shared:
            self.problems.append(f"/dev/shm has {shared}")
        if self.isolated and processes.listening():
            self.problems.append(f"listening: {processes.listening()}")
        theirs = (".cache", "torch", "pymp") if self.plan.torch else (".cache",)
        in_home = [name for name in os.listdir(self.home) if not name.startswith(theirs)]
        if in_home:
            self.problems.append(f"temporary files: {in_home}")
        if self.run_directory.exists():
            parts = [str(path) for pattern in ("*.tmp*", "scratch", "live") for path in self.run_directory.rglob(pattern)]
            if parts:
                self.problems.append(f"unfinished: {parts}")

    def shared_names(self) -> set[str]:
        try:
            run = json.loads((self.run_directory / "run.json").read_text())["id"]
        except OSError:
            return set()
        return {name for name in os.listdir("/dev/shm") if run in name}

    def check_promise(self) -> float:
        """When one of lockstep is killed, nothing of the job lives 3 s later."""
        killed = self.plan.signal in (signal.SIGKILL, signal.SIGSEGV)
        if self.victim not in ("guard", "supervisor") or not killed or not self.struck or not self.job_gone:
            return 0.0
        if self.plan.place == "pid1" and self.victim == "guard" and self.plan.signal == signal.SIGSEGV:
            return 0.0  # The kernel lets no such signal through to a pid 1.
        took = self.job_gone - self.struck_at
        if took > LATE_S:
            self.problems.append(f"the job lived for {took:.1f} s after its {self.victim} had been killed")
        return took

    def check_verdict(self) -> None:
        """Lockstep itself was not harmed: it ends with a status of its own, and names nobody but whom we hit."""
        if self.victim in ("guard", "supervisor", "all") and self.plan.signal != signal.SIGSTOP:
            return
        said = (self.scratch / "said").read_text(errors="replace")[-800:]
        if self.main.returncode not in STATUSES:
            self.problems.append(f"status {self.main.returncode}: {said}")
            return
        report = json.loads((self.run_directory / "report.json").read_text())
        if report["exit"] != self.main.returncode:
            self.problems.append(f"status {self.main.returncode}, report says {report['exit']}")
        hit = {self.rank_of[seen.pid] for seen in self.struck if seen.pid in self.rank_of}
        for finding in report["findings"]:
            if finding["code"].startswith(RANK_CODES) and not set(finding["culprits"]) <= hit:
                self.problems.append(f"an innocent rank is named: {finding['headline']} ({self.struck and self.struck[0]})")
        self.check_named(report, hit)

    def check_named(self, report: dict, hit: set) -> None:
        """A rank that died of our signal is LS101; under another launcher it may be open who was first."""
        ended = [json.loads(line) for line in (self.run_directory / "history/lockstep.jsonl").read_text().splitlines()]
        died = {e.get("rank") for e in ended if e["e"] == "process_end" and e["pid"] in {s.pid for s in self.struck}
                and e.get("signal") and not e.get("our_signal")}
        named = {rank for f in report["findings"] if f["code"] == "LS101" for rank in f["culprits"]}
        if self.plan.place != "pid1" and not self.plan.launcher and died and died <= hit and not died <= named:
            self.problems.append(f"rank {died} died of our signal, LS101 names {named}")

    # ------------------------------------------------------------------------------------------ all of it

    def run(self) -> dict:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # Ignored in what a shell starts with `&`.
        processes.adopt_orphans()
        self.isolated = os.geteuid() == 0 and processes.isolate()
        self.start_bystander()
        self.start()
        self.strike()
        # The kernel takes all of a namespace along with its pid 1.
        if self.victim == "guard" and self.plan.place == "pid1" and self.plan.signal == signal.SIGKILL:
            self.victim = "all"
        if self.victim == "all" and self.struck:
            self.clean()
        self.after_stop()
        # Others may wait half an hour for one that never joined; and what a launcher's rank has left before anybody
        # looked cannot be told from a rank.
        asked = (self.plan.torch or bool(self.plan.launcher)) and not self.wait_for_end(PATIENCE_S)
        if asked:
            processes.send(Seen(self.guard()), signal.SIGINT)
        if not self.wait_for_end(END_S):
            self.problems.append(f"it had not ended after {END_S:.0f} s")
        took = self.check_promise()
        self.check_left()
        self.check_bystander()
        if not self.problems:
            self.check_verdict()
        said = (self.scratch / "said").read_text(errors="replace")
        if not self.problems:
            shutil.rmtree(self.scratch, ignore_errors=True)
        return {"plan": str(self.plan), "problems": self.problems, "struck": [f"{self.victim}: {s}" for s in self.struck],
                "gone_s": round(took, 2), "status": self.main.returncode, "isolated": self.isolated,
                "wall_s": round(time.monotonic() - self.begun, 1), "unproven": getattr(self, "unproven", []),
                "cleaned": getattr(self, "before_clean", 0), "asked": asked,
                "kept": str(self.scratch) if self.problems else "", "said": said[-2000:] if self.problems else ""}


if __name__ == "__main__":
    drawn = plan_of(int(sys.argv[1]), int(sys.argv[2]))
    drawn = dataclasses.replace(drawn, place="root") if "root" in sys.argv[4:] else drawn
    print(json.dumps(Storm(drawn, sys.argv[3]).run()))
