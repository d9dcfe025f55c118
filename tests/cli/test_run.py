"""`lockstep run` over small programs, looked at from outside: what they print and how they end is theirs, and what is
wrong with them is named. The programs with torch are few: each rank takes seconds to import it."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import unittest

from program import DEADLINE_S, PROGRAM, ProgramTest, environment

TORCH_PYTHON = os.environ.get("LOCKSTEP_PYTHON", "")


class RunTest(ProgramTest):
    def report(self) -> dict:
        return json.loads((self.directory / "run" / "report.json").read_text())

    def journal(self) -> list[dict]:
        lines = (self.directory / "run" / "history" / "lockstep.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def script(self, name: str, text: str) -> pathlib.Path:
        path = self.directory / name
        path.write_text(text)
        return path

    def start(self, *arguments: str) -> subprocess.Popen:
        process = subprocess.Popen(
            [PROGRAM, "run", "--run-dir", "run", *arguments], cwd=self.directory, env=environment(),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, start_new_session=True,
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def until(self, condition, what: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.05)


class AnyProgram(RunTest):
    """Programs without torch."""

    def test_ranks_are_told_who_they_are(self) -> None:
        show = "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR ${MASTER_PORT:+port}"
        done = self.lockstep("run", "-n", "2", "--", "sh", "-c", show)
        self.assertEqual(done.status, 0, done.err)
        self.assertEqual(sorted(done.lines), ["0 0 2 2 127.0.0.1 port", "1 1 2 2 127.0.0.1 port"])

    def test_words_of_the_command_are_left_alone(self) -> None:
        words = ["[1,2]", "", "--n", "-n", "--", "a b", "[]"]
        done = self.lockstep("run", "--", "printf", "<%s>", *words)
        self.assertEqual(done.out, "".join(f"<{word}>" for word in words), done.err)

    def test_output_is_passed_on_and_kept(self) -> None:
        talk = "printf 'out\\0%s' $RANK; printf 'err %s' $RANK >&2"
        done = self.lockstep("run", "-n", "1", "--run-dir", "run", "--", "sh", "-c", talk)
        self.assertEqual((done.status, done.out), (0, "out\0000"), done.err)
        self.assertIn("err 0", done.err)
        self.assertEqual((self.directory / "run/logs/0.out").read_bytes(), b"out\0000")
        self.assertEqual((self.directory / "run/logs/0.err").read_bytes(), b"err 0")

    def test_who_reads_late_gets_all_of_it(self) -> None:
        process = self.start("-n", "1", "--", sys.executable, "-c", "print('x' * 600_000)")
        self.until(lambda: (self.directory / "run/logs/0.out").exists()
                   and (self.directory / "run/logs/0.out").stat().st_size == 600_001, "it has printed")
        time.sleep(1)  # It has ended; what it printed is on the way.
        self.assertEqual(len(process.communicate(timeout=DEADLINE_S)[0]), 600_001)
        self.assertEqual(process.returncode, 0)

    def test_who_reads_late_gets_what_a_pipe_still_held(self) -> None:
        """A part is still in the rank's pipe when it has ended: what we hold back has a limit."""
        for lines in (11_200, 11_300, 11_400):
            text = f"import os; os.write(1, (b'x' * 99 + b'\\n') * {lines}); os.mkdir('{lines}')"
            with self.subTest(lines=lines):
                shutil.rmtree(self.directory / "run", ignore_errors=True)
                process = self.start("-n", "1", "--", sys.executable, "-c", text)
                self.until((self.directory / str(lines)).exists, "it has printed")
                time.sleep(1)  # It has ended; what it printed is on the way.
                self.assertEqual(len(process.communicate(timeout=DEADLINE_S)[0]), 100 * lines)
                self.assertEqual(process.returncode, 0)

    def test_a_line_that_does_not_end_costs_no_more_than_lines_do(self) -> None:
        took = []
        for chunk in ("b'x' * 99 + b'\\n'", "b'x' * 100"):
            shutil.rmtree(self.directory / "run", ignore_errors=True)
            process = self.start("-n", "1", "--", sys.executable, "-c", f"import os; os.write(1, ({chunk}) * 600_000)")
            time.sleep(1)  # A reader that comes late.
            begun = time.monotonic()
            self.assertEqual(len(process.communicate(timeout=DEADLINE_S)[0]), 60_000_000)
            took.append(time.monotonic() - begun)
        self.assertLess(took[1], 5 * took[0] + 5)

    def test_lines_of_ranks_stay_whole(self) -> None:
        in_two = ("import os, time\nfor i in range(100):\n"
                  " os.write(1, b'rank '); time.sleep(0.001); os.write(1, os.environ['RANK'].encode() + b'\\n')")
        done = self.lockstep("run", "-n", "3", "--", sys.executable, "-c", in_two)
        self.assertEqual(sorted(done.lines), [f"rank {rank}" for rank in range(3) for _ in range(100)])

    def test_the_beginning_of_a_line_does_not_wait_for_its_end(self) -> None:
        process = self.start("-n", "1", "--", "sh", "-c", "printf 'name? '; sleep 60")
        self.assertEqual(os.read(process.stdout.fileno(), 100), b"name? ")
        process.send_signal(signal.SIGINT)

    def test_more_output_than_a_pipe_holds(self) -> None:
        done = self.lockstep("run", "-n", "2", "--", sys.executable, "-c", "print('x' * 3_000_000)")
        self.assertEqual((done.status, len(done.out)), (0, 6_000_002), done.err)

    def test_stdin_goes_to_rank_0(self) -> None:
        done = subprocess.run(
            [PROGRAM, "run", "-n", "2", "--", "sh", "-c", "echo $RANK:$(cat)"], cwd=self.directory, env=environment(),
            input=b"hello", capture_output=True, timeout=DEADLINE_S,
        )
        self.assertEqual(sorted(done.stdout.decode().split()), ["0:hello", "1:"], done.stderr)

    def test_command_of_its_own_inherits_everything(self) -> None:
        reading, writing = os.pipe()
        script = f"echo to $0; echo there >&{writing}; ulimit -n"
        done = subprocess.run(
            [PROGRAM, "run", "--", "sh", "-c", script, "me"], cwd=self.directory, env=environment(),
            capture_output=True, timeout=DEADLINE_S, pass_fds=[writing],
        )
        os.close(writing)
        with os.fdopen(reading) as pipe:
            self.assertEqual(pipe.read(), "there\n")
        self.assertEqual((done.returncode, done.stdout.split()[:2]), (0, [b"to", b"me"]), done.stderr)

    def test_rank_that_fails_is_found(self) -> None:
        done = self.lockstep("run", "-n", "3", "--run-dir", "run", "--", "sh", "-c", "exit $((RANK == 1 ? 7 : 0))")
        self.assertEqual((done.status, done.out), (1, ""), done.err)
        [finding] = self.report()["findings"]
        self.assertEqual((finding["code"], finding["culprits"]), ("LS101", [1]))
        self.assertEqual(self.report()["program_exit"], 7)

    def test_signal_and_exception_are_told(self) -> None:
        text = "import os\ndef work():\n    raise ValueError('bad batch')\nif os.environ['RANK'] == '1': work()\n"
        self.script("train.py", text)
        done = self.lockstep("run", "-n", "2", "--run-dir", "run", "--", sys.executable, "train.py")
        self.assertEqual(done.status, 1, done.err)
        [finding] = self.report()["findings"]
        self.assertEqual((finding["code"], finding["culprits"]), ("LS101", [1]), done.err)
        self.assertIn("ValueError: bad batch", finding["headline"])
        site = finding["sites"][0]
        self.assertEqual((pathlib.Path(site["file"]).name, site["line"], site["function"]), ("train.py", 3, "work"))

    def test_status_of_the_program_if_asked(self) -> None:
        self.assertEqual(self.lockstep("run", "--exit", "program", "-n", "2", "--", "sh", "-c", "exit 9").status, 9)

    def test_nothing_became_a_rank(self) -> None:
        self.assertEqual(self.lockstep("run", "--", "sh", "-c", "exit 4").status, 3)
        self.assertEqual(self.lockstep("run", "--", "true").status, 0)

    def test_not_found_and_not_executable(self) -> None:
        self.script("data.txt", "no program")
        for command, status in (("no-such-program", 127), ("./no/such", 127), ("./data.txt", 126)):
            done = self.lockstep("run", "--", command)
            self.assertEqual(done.status, status, done)
            self.assertIn(command, done.err)
            self.assertFalse((self.directory / ".lockstep").exists())

    def test_usage(self) -> None:
        self.assert_refused(self.lockstep("run"), "after --")
        self.assert_refused(self.lockstep("run", "-n", "0", "--", "true"), "1024")
        self.assert_refused(self.lockstep("run", "--require", "nothing", "--", "true"), "deadlock")
        self.assert_refused(self.lockstep("run", "--on-hang", "sleep", "--", "true"), "report")
        self.script("full", "")
        self.assert_refused(self.lockstep("run", "--run-dir", ".", "--", "true"), "not empty")

    def test_check_says_the_same(self) -> None:
        self.lockstep("run", "-n", "2", "--run-dir", "run", "--", "sh", "-c", "kill -9 $$")
        first = self.report()
        done = self.lockstep("check", "run")
        self.assertEqual(done.status, 1, done.err)
        self.assertEqual(self.report(), first)

    def test_what_is_left_is_ended(self) -> None:
        done = self.lockstep("run", "-n", "1", "--run-dir", "run", "--", "sh", "-c", "sleep 300 & echo $!")
        pid = done.out.strip()
        self.assertEqual(done.status, 1, done.err)
        self.assertFalse(os.path.exists(f"/proc/{pid}"))
        self.assertIn(f"error[LS104]: pid {pid} (sleep 300) of rank 0 outlived the job", done.err)

    def test_what_a_rank_left_behind_is_no_rank(self) -> None:
        left = "sleep 60 > /dev/null 2>&1 & echo $!"  # Has its RANK, and by the next look no parent but lockstep.
        launch = f"RANK=0 WORLD_SIZE=1 sh -c '({left}); sleep 2'; sleep 0.6"
        done = self.lockstep("run", "--keep", "--run-dir", "run", "--", "sh", "-c", launch)
        pid = int(done.out)
        self.assertEqual((done.status, os.path.exists(f"/proc/{pid}")), (0, True), done.err)
        os.kill(pid, signal.SIGKILL)

    def test_survivors_that_are_allowed(self) -> None:
        for option in (["--keep"], ["--allow-survivor", "sleep"]):
            done = self.lockstep("run", *option, "-n", "1", "--", "sh", "-c", "sleep 30 > /dev/null 2>&1 & echo $!")
            pid = int(done.out)
            self.assertEqual((done.status, os.path.exists(f"/proc/{pid}")), (0, True), done.err)
            os.kill(pid, signal.SIGKILL)


class Interrupted(RunTest):
    def started(self) -> bool:
        path = self.directory / "run" / "history" / "lockstep.jsonl"
        return path.exists() and path.read_text().count('"process_start"') == 2

    def interrupt(self, number: int) -> None:
        process = self.start("-n", "2", "--", "sleep", "300")
        self.until(self.started, "two ranks")
        os.kill(process.pid, number)
        begun = time.monotonic()
        out, err = process.communicate(timeout=DEADLINE_S)
        self.assertLess(time.monotonic() - begun, 5)
        self.assertEqual((process.returncode, out), (130, b""), err)
        self.assertIn(signal.Signals(number).name, err.decode())
        self.assertEqual(self.report()["verdict"], "undecided")
        pids = [e["pid"] for e in self.journal() if e["e"] == "process_start"]
        self.assertEqual([pid for pid in pids if os.path.exists(f"/proc/{pid}")], [])

    def test_by_ctrl_c(self) -> None:
        self.interrupt(signal.SIGINT)

    def test_by_term(self) -> None:
        self.interrupt(signal.SIGTERM)

    def test_handler_with_the_wrong_signature(self) -> None:
        """It raises when Ctrl-C comes, and again at exit: the job ends all the same, and that is no finding."""
        script = self.script("train.py", """
import atexit, signal, time
def stop(number):
    pass
signal.signal(signal.SIGINT, stop)
atexit.register(stop)
print("up", flush=True)
while True:
    time.sleep(0.1)
""")
        process = self.start("--", sys.executable, str(script))
        self.assertEqual(process.stdout.readline(), b"up\n")
        os.killpg(process.pid, signal.SIGINT)  # As a terminal sends it.
        _, err = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(process.returncode, 130, err)
        self.assertIn("TypeError: stop()", err.decode())
        self.assertEqual((self.report()["findings"], self.report()["program_exit"]), ([], 1))


def can_unshare() -> bool:
    return subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True).returncode == 0


@unittest.skipUnless(can_unshare(), "needs to make a pid namespace: root, or user namespaces")
class Pid1(RunTest):
    """As in a container: lockstep is pid 1."""

    def unshared(self, *options: str) -> subprocess.CompletedProcess:
        # A program that leaves when its parent is gone: that is no pid 1, though lockstep is.
        watch = "import os, sys; sys.exit(os.fork() == 0 and os.getppid() == 1 or os.getppid() == 1)"
        return subprocess.run(["unshare", "--pid", "--fork", *options, PROGRAM, "run", "--run-dir", "run", "-n", "2", "--",
                               sys.executable, "-c", watch], cwd=self.directory, env=environment(),
                              capture_output=True, timeout=DEADLINE_S, stdin=subprocess.DEVNULL)

    def test_healthy(self) -> None:
        done = self.unshared("--mount-proc")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(self.report()["findings"], [])

    def test_proc_of_another_namespace_is_refused(self) -> None:
        done = self.unshared()
        self.assertEqual(done.returncode, 125, done)
        self.assertIn(b"/proc", done.stderr)


PRELUDE = """
import os, sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, t = dist.get_rank(), torch.ones(4)
dist.all_reduce(t)
"""


@unittest.skipUnless(TORCH_PYTHON, "needs a Python that has torch")
class WithTorch(RunTest):
    def run_program(self, text: str, *options: str) -> "Done":
        self.script("train.py", PRELUDE + text)
        return self.lockstep("run", "-n", "2", "--run-dir", "run", *options, "--", TORCH_PYTHON, "train.py")

    def test_healthy(self) -> None:
        done = self.run_program('os.write(1, f"{t.tolist()}\\n".encode())\ndist.destroy_process_group()\n')
        self.assertEqual((done.status, done.out), (0, "[2.0, 2.0, 2.0, 2.0]\n" * 2), done.err)
        self.assertEqual(self.report()["findings"], [])

    def test_deadlock_is_proven_and_ended(self) -> None:
        done = self.run_program("dist.all_reduce(t) if rank == 0 else dist.broadcast(t, 0)\ndist.barrier()\n")
        self.assertEqual(done.status, 1, done.err)
        [finding] = self.report()["findings"]
        self.assertEqual((finding["code"], finding["culprits"]), ("LS201", []), done.err)
        self.assertEqual({(pathlib.Path(s["file"]).name, s["line"]) for s in finding["sites"]}, {("train.py", 6)})
        self.assertEqual({e["our_signal"] for e in self.journal() if e["e"] == "process_end"}, {signal.SIGTERM})

    def test_failure_before_there_are_ranks(self) -> None:
        self.script("train.py", "import torch\nraise OSError('no data')\n")
        done = self.lockstep("run", "--run-dir", "run", "--", TORCH_PYTHON, "train.py")
        self.assertEqual(done.status, 3, done.err)
        self.assertIn("it raised OSError: no data at train.py:2", self.report()["reason"])

    def test_killed_rank_frees_the_others(self) -> None:
        done = self.run_program("if rank == 1: os.kill(os.getpid(), 9)\ndist.all_reduce(t)\n")
        self.assertEqual(done.status, 1, done.err)
        [finding] = self.report()["findings"]
        self.assertEqual((finding["code"], finding["culprits"]), ("LS101", [1]), done.err)

    def test_spawned_ranks_of_a_healthy_program(self) -> None:
        self.script("train.py", """
import os, sys, torch, torch.distributed as dist, torch.multiprocessing as mp
def work(rank, path):
    dist.init_process_group("gloo", init_method="file://" + path, rank=rank, world_size=2)
    dist.all_reduce(torch.ones(4))
    dist.destroy_process_group()
if __name__ == "__main__":
    mp.spawn(work, args=(os.path.abspath("meet"),), nprocs=2)
    print("done")
""")
        done = self.lockstep("run", "--run-dir", "run", "--", TORCH_PYTHON, "train.py")
        self.assertEqual((done.status, done.out), (0, "done\n"), done.err)
        report = self.report()
        self.assertEqual((report["findings"], report["world_size"], len(report["ranks"])), ([], 2, 2), done.err)
        self.assertEqual([rank["status"] for rank in report["ranks"]], [{"exited": 0}] * 2)

    def test_own_launcher(self) -> None:
        self.script("train.py", PRELUDE + "if rank == 1: raise ValueError('bad batch')\ndist.all_reduce(t)\n")
        done = self.lockstep("run", "--run-dir", "run", "--", TORCH_PYTHON, "-m", "torch.distributed.run",
                             "--standalone", "--nproc-per-node=2", "train.py")
        self.assertEqual(done.status, 1, done.err)
        [finding] = self.report()["findings"]
        self.assertEqual((finding["code"], finding["culprits"]), ("LS101", [1]), done.err)
        self.assertEqual(self.report()["world_size"], 2)


if __name__ == "__main__":
    unittest.main()
