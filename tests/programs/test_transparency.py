"""What a program does is the same with and without lockstep: output, exit status, files, and all it finds around itself.

Each case is run by hand, started by `lockstep run -n`, and under `lockstep run` by a launcher of its own. What may
differ is in `OF_LOCKSTEP` of transparent.py. The order in which the lines of several ranks, or of the two streams of
one, come out of -n is not kept: they are compared one by one, from the logs.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import pty
import re
import resource
import select
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("LOCKSTEP_BUILD_DIR", SOURCE / "build"))
LOCKSTEP = os.environ.get("LOCKSTEP_PROGRAM", str((BUILD / "bin" / "lockstep").resolve()))
PYTHON = os.environ.get("LOCKSTEP_PYTHON", str(SOURCE / ".venv" / "bin" / "python"))
DEADLINE_S = 120
TRANSPARENT = str(pathlib.Path(__file__).parent / "transparent.py")
GOOD = SOURCE / "fixtures" / "programs"


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    command: tuple
    ranks: int = 1
    environment: dict = dataclasses.field(default_factory=dict)
    prepare: object = None  # Called in the child before its exec.
    stdin: bytes = b""
    pass_fds: tuple = ()


@dataclasses.dataclass
class Outcome:
    """By rank: stdout, stderr, exit status. And all files left behind."""

    out: list
    err: list
    status: list
    files: dict


def python(name: str, *arguments: str, options: tuple = ()) -> tuple:
    return (PYTHON, *options, "-B", TRANSPARENT, name, *arguments)


def limits() -> None:
    for name, value in (("NOFILE", 200), ("CORE", 0), ("STACK", 4 << 20), ("FSIZE", 1 << 30)):
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    os.umask(0o007)
    os.nice(3)


def signals() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGTERM, signal.SIGRTMIN + 3})
    for n in (signal.SIGHUP, signal.SIGPIPE, signal.SIGUSR2, signal.SIGCHLD):
        signal.signal(n, signal.SIG_IGN)


SHELL = """
echo "$0" "$#" "$-" "$@"; pwd; umask; ulimit -a; trap; env | grep -v -E '^(LD_PRELOAD|LOCKSTEP_.*|MASTER_PORT)=' | sort
cat < /dev/null; (exit 3); echo $?; readlink /proc/$$/exe; no_such_command
trap 'echo usr1; exit 6' USR1; kill -USR1 $$
"""

PLAIN = [
    Case("surroundings", python("surroundings")),
    Case("limits, umask and priority", python("surroundings"), prepare=limits),
    Case("signals blocked and ignored", python("surroundings"), prepare=signals),
    Case("a locale, and an environment that is no text", python("surroundings"),
         environment={"LC_ALL": "C", "EMPTY": "", "ODD": "a=b\n c", "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "3"}),
    Case("streams", python("streams")),
    Case("streams, unbuffered", python("streams", options=("-u",)), environment={"PYTHONIOENCODING": "latin-1:replace"}),
    Case("standard input", python("standard_input"), stdin=b"a\0b\n" * 100_000),
    Case("files", python("files")),
    Case("children and exec", python("children")),
    Case("timers and masks", python("timers")),
    Case("a shell script", ("sh", "-c", SHELL, "name", "one two", "*", "")),
    *(Case(f"ends: {how}", python("ends", how)) for how in ("0", "7", "255", "raise", "leave")),
    *(Case(f"ends: {how}", python("ends", how)) for how in ("SIGKILL", "SIGABRT", "SIGSEGV", "SIGTERM", "SIGINT")),
]

WITH_TORCH = [
    *(Case(f"torch: {name}", python(name), ranks=2)
      for name in ("training", "operations", "groups", "loader", "again", "fails_in_a_collective")),
    Case("torch: signals blocked and ignored", python("surroundings_of_rank"), ranks=2, prepare=signals),
    Case("torch: python -I -S", python("isolated", options=("-I", "-S")), ranks=2, environment={
        "PACKAGES": str(next(pathlib.Path(PYTHON).parent.parent.glob("lib*/python*/site-packages")))}),
    Case("torch: a program in C++", (str(BUILD.resolve() / "programs" / "counters"), "good"), ranks=2),
    Case("torch: a pipeline", (PYTHON, "-B", str(GOOD / "pipeline.py"), "good"), ranks=2),
]


def free_port() -> str:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return str(listening.getsockname()[1])


def environment_of(case: Case) -> dict:
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "LC_ALL", "LC_CTYPE", "LD_PRELOAD")
            and not k.startswith("LOCKSTEP_")}
    return {**kept, "LANG": "C.UTF-8", **case.environment}


def as_rank(rank: int, ranks: int) -> dict:
    return {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1"}


def shell_status(returncode: int) -> int:
    return returncode if returncode >= 0 else 128 - returncode


class Streams(contextlib.ExitStack):
    """Pipes of one process, read while others run."""

    def __init__(self, command, stdin: bytes | None, **options):
        super().__init__()
        self.given = self.enter_context(open("/dev/null", "rb") if stdin is None else tempfile.TemporaryFile())
        if stdin is not None:
            self.given.write(stdin)
            self.given.seek(0)
        self.process = subprocess.Popen(command, stdin=self.given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        self.callback(self.process.kill)

    def result(self) -> tuple:
        out, err = self.process.communicate(timeout=DEADLINE_S)
        return out, err, shell_status(self.process.returncode)


def by_hand(case: Case, folder: pathlib.Path) -> Outcome:
    """As the user would start the ranks, each with its own variables."""
    port, ranks = free_port(), []
    with contextlib.ExitStack() as stack:
        for rank in range(case.ranks):
            variables = {**environment_of(case), **as_rank(rank, case.ranks), "MASTER_PORT": port}
            ranks.append(stack.enter_context(Streams(
                case.command, case.stdin if rank == 0 else None, cwd=folder, env=variables, preexec_fn=case.prepare,
                pass_fds=case.pass_fds)))
        outcomes = [rank.result() for rank in ranks]
    return Outcome([o[0] for o in outcomes], [o[1] for o in outcomes], [o[2] for o in outcomes], files_of(folder))


def started_by_lockstep(case: Case, folder: pathlib.Path, run: pathlib.Path) -> tuple[Outcome, tuple]:
    """`-n`: from its logs. And what came through: both streams and the exit status of lockstep."""
    command = (LOCKSTEP, "run", "--exit", "program", "-n", str(case.ranks), "--run-dir", str(run), "--", *case.command)
    with Streams(command, case.stdin, cwd=folder, env=environment_of(case), preexec_fn=case.prepare,
                 pass_fds=case.pass_fds) as job:
        through = job.result()
    report = json.loads((run / "report.json").read_text())
    if case.ranks > 1 and len(list((run / "history").iterdir())) <= case.ranks:  # With the journal.
        raise AssertionError(f"the tap was not in every rank: {through[1].decode()}")
    statuses = [rank["status"] for rank in sorted(report["ranks"], key=lambda rank: rank["rank"])]
    logs = [[(run / "logs" / f"{rank}.{kind}").read_bytes() for rank in range(case.ranks)] for kind in ("out", "err")]
    return Outcome(*logs, [s["exited"] if "exited" in s else 128 + s["signaled"] for s in statuses], files_of(folder)), through


LAUNCHER = """
import concurrent.futures, json, os, subprocess, sys
ranks, port, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
processes = [subprocess.Popen(command, stdin=sys.stdin if r == 0 else open("/dev/null"), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, close_fds=False, restore_signals=False, preexec_fn=os.getpid,
                              env={**os.environ, "RANK": str(r), "LOCAL_RANK": str(r), "MASTER_PORT": port})
             for r in range(ranks)]
with concurrent.futures.ThreadPoolExecutor(ranks) as pool:
    texts = list(pool.map(lambda process: process.communicate(), processes))
print(json.dumps([[p.returncode, *(text.decode("latin-1") for text in both)] for p, both in zip(processes, texts)]))
"""


def launched(case: Case, folder: pathlib.Path, run: pathlib.Path) -> Outcome:
    """Several ranks, by a launcher of the user's."""
    variables = {**environment_of(case), **as_rank(0, case.ranks)}
    for name in ("RANK", "LOCAL_RANK"):
        del variables[name]
    command = (LOCKSTEP, "run", "--exit", "program", "--run-dir", str(run), "--", PYTHON, "-c", LAUNCHER,
               str(case.ranks), free_port(), *case.command)
    with Streams(command, case.stdin, cwd=folder, env=variables, preexec_fn=case.prepare, pass_fds=case.pass_fds) as job:
        out, err, status = job.result()
    if status != 0:
        raise AssertionError(f"the launcher ended with {status}: {err.decode()}")
    ends = json.loads(out)
    streams = [[end[i].encode("latin-1") for end in ends] for i in (1, 2)]
    return Outcome(*streams, [shell_status(end[0]) for end in ends], files_of(folder))


def followed(case: Case, folder: pathlib.Path, run: pathlib.Path) -> tuple:
    """One rank without -n: its streams are lockstep's own."""
    command = (LOCKSTEP, "run", "--exit", "program", "--run-dir", str(run), "--", *case.command)
    variables = {**environment_of(case), **as_rank(0, 1), "MASTER_PORT": "1"}
    with Streams(command, case.stdin, cwd=folder, env=variables, preexec_fn=case.prepare, pass_fds=case.pass_fds) as job:
        return job.result()


def files_of(folder: pathlib.Path) -> dict:
    """Kind, mode and content by name."""
    found = {}
    for path in sorted(folder.rglob("*")):
        kind = path.lstat()
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if stat.S_ISREG(kind.st_mode) else b""
        found[str(path.relative_to(folder))] = (oct(kind.st_mode), kind.st_size if content else 0, content)
    return found


def plain(text: bytes) -> bytes:
    """Without the time and the process of a log line of torch."""
    return re.sub(rb"\[([IWEF])\d{4} [\d:.]+( +\d+)? ", rb"[\1 ", text)


class Transparency(unittest.TestCase):
    maxDiff = 4000

    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory(prefix="lockstep-transparent-")
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)

    def fresh(self) -> pathlib.Path:
        """One path for all runs of a case: it is seen in what they print."""
        folder = self.scratch / "a folder"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    def run_directory(self, name: str) -> pathlib.Path:
        path = self.scratch / name
        shutil.rmtree(path, ignore_errors=True)
        return path

    def assert_same(self, one: Outcome, other: Outcome) -> None:
        self.assertEqual(one.status, other.status, other.err)
        for rank, (a, b) in enumerate(zip(one.out, other.out, strict=True)):
            self.assertEqual(a.splitlines(), b.splitlines(), f"stdout of rank {rank}")
        for rank, (a, b) in enumerate(zip(one.err, other.err, strict=True)):
            self.assertEqual(plain(a).splitlines(), plain(b).splitlines(), f"stderr of rank {rank}")
        self.assertEqual(one.files, other.files)

    def check_one(self, case: Case) -> None:
        alone = by_hand(case, self.fresh())
        started, through = started_by_lockstep(case, self.fresh(), self.run_directory("started"))
        self.assert_same(alone, started)
        if case.ranks > 1:
            self.assertEqual(sorted(through[0].splitlines()), sorted(b"".join(alone.out).splitlines()))
            self.assert_same(alone, launched(case, self.fresh(), self.run_directory("launched")))
            return
        out, err, status = followed(case, self.fresh(), self.run_directory("followed"))
        for seen_out, seen_err, seen_status in (through, (out, err, status)):
            self.assertEqual(seen_out, alone.out[0])
            self.assertIn(plain(alone.err[0]), plain(seen_err))
            self.assertEqual(seen_status, alone.status[0], seen_err)
        self.assertEqual(files_of(self.scratch / "a folder"), alone.files)

    def check(self, cases: list) -> None:
        for case in cases:
            with self.subTest(case.name):
                self.check_one(case)

    def test_programs_without_torch(self) -> None:
        self.check(PLAIN)

    def test_programs_with_torch(self) -> None:
        self.check(WITH_TORCH)

    def test_a_descriptor_of_the_user(self) -> None:
        with tempfile.TemporaryFile() as given:
            given.write(b"something to read")
            given.flush()
            fd = given.fileno()
            read = f"import os; print(os.pread({fd}, 99, 0), os.get_inheritable({fd}))"
            self.check([Case("descriptor", (sys.executable, "-c", read), pass_fds=(fd,))])

    def test_a_program_in_c(self) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            self.skipTest("there is no cc")
        source, program = self.scratch / "probe.c", self.scratch / "probe"
        source.write_text(PROBE)
        subprocess.run([compiler, source, "-o", program], check=True)
        self.check([Case("a program in C", (str(program), "a", "")),
                    Case("a program in C, signals", (str(program),), prepare=signals)])

    def test_a_library_and_a_sitecustomize_of_the_user(self) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            self.skipTest("there is no cc")
        source, library = self.scratch / "mine.c", self.scratch / "mine.so"
        source.write_text("char* ctermid(char* to) { (void)to; return \"mine\"; }\n")
        subprocess.run([compiler, "-shared", "-fPIC", source, "-o", library], check=True)
        (self.scratch / "sitecustomize.py").write_text("import sys; sys.stderr.write('customised\\n')\n")
        variables = {"LD_PRELOAD": str(library), "PYTHONPATH": str(self.scratch)}
        self.check([Case("preloaded", python("preloaded"), ranks=2, environment=variables)])

    def test_a_script_without_a_first_line(self) -> None:
        script = self.scratch / "script"
        script.write_text("echo $# $1; exit 5\n")
        script.chmod(0o755)
        self.check([Case("as execvp(3) starts it", ("sh", "-c", 'exec "$0" "$@"', str(script), "a b", ""))])
        for options in ((), ("-n", "1")):
            done = subprocess.run((LOCKSTEP, "run", "--exit", "program", *options, "--run-dir", self.run_directory("run"),
                                   "--", script, "a b", ""), capture_output=True, timeout=DEADLINE_S, check=False)
            self.assertEqual((done.returncode, done.stdout), (5, b"2 a b\n"), done.stderr)

    def test_no_standard_streams(self) -> None:
        """What lockstep opens does not take their places. (Under -n a rank has pipes, and /dev/null to read.)"""
        for fd, name in enumerate(("stdin", "stdout", "stderr")):
            command, folder = python("no_stream", str(fd), "found"), self.fresh()
            found = []
            for before in ((), (LOCKSTEP, "run", "--run-dir", self.run_directory(name), "--")):
                done = subprocess.run((*before, *command), cwd=folder, env=environment_of(Case("", ())), timeout=DEADLINE_S,
                                      preexec_fn=lambda: os.close(fd), stderr=subprocess.DEVNULL, check=False)
                found.append((done.returncode, (folder / "found").read_text()))
            self.assertEqual(found[0], found[1], name)
            self.assertEqual(found[0][0], 0)

    def test_a_conversation(self) -> None:
        """A prompt without a newline is seen before the answer is given."""
        ask = "name = input('your name? '); print('hello', name, flush=True); import sys; print(sys.stdin.read())"
        for options in ((), ("-n", "2")):
            program = (sys.executable, "-c", f"import os\nif os.environ.get('RANK', '0') == '0': {ask}")
            process = subprocess.Popen(
                (LOCKSTEP, "run", *options, "--run-dir", self.run_directory("talk"), "--", *program), cwd=self.scratch,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            self.addCleanup(process.kill)
            self.assertEqual(self.read_until(process.stdout.fileno(), b"your name? "), b"your name? ")
            process.stdin.write(b"Ada\n")
            process.stdin.flush()
            self.assertEqual(self.read_until(process.stdout.fileno(), b"\n"), b"hello Ada\n")
            self.assertEqual(process.communicate(b"rest", timeout=DEADLINE_S)[0], b"rest\n")
            self.assertEqual(process.returncode, 0)

    def read_until(self, fd: int, end: bytes) -> bytes:
        read, deadline = b"", time.monotonic() + DEADLINE_S
        while not read.endswith(end):
            self.assertTrue(select.select([fd], [], [], max(0, deadline - time.monotonic()))[0], read)
            part = os.read(fd, 4096)
            self.assertTrue(part, read)
            read += part
        return read

    def test_a_reader_that_leaves(self) -> None:
        """As under head(1): SIGPIPE for who takes it, an error for who does not."""
        write = "import os, signal; signal.signal(signal.SIGPIPE, signal.SIG_DFL)\nwhile True: os.write(1, b'line\\n' * 1000)"
        program = shlex.join((sys.executable, "-c", write))
        statuses = []
        for before in ("", f"{LOCKSTEP} run --exit program --run-dir one --",
                       f"{LOCKSTEP} run --exit program -n 1 --run-dir two --"):
            done = subprocess.run(["bash", "-c", f"{before} {program} | head -1; exit ${{PIPESTATUS[0]}}"],
                                  cwd=self.scratch, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, timeout=DEADLINE_S)
            statuses.append((done.returncode, done.stdout))
        self.assertEqual(statuses, [(141, b"line\n")] * 3)

    def test_a_terminal(self) -> None:
        folder, found = self.fresh(), []
        for before in ((), (LOCKSTEP, "run", "--run-dir", self.run_directory("a")),
                       (LOCKSTEP, "run", "-n", "1", "--run-dir", self.run_directory("b"))):
            leader, follower = pty.openpty()
            variables = {**environment_of(Case("", ())), **as_rank(0, 1)}
            process = subprocess.Popen((*before, *(("--",) if before else ()), *python("surroundings", "found")), cwd=folder,
                                       env=variables, stdin=follower, stdout=follower, stderr=follower)
            os.close(follower)
            with contextlib.suppress(OSError):  # EIO: the other side is closed
                while select.select([leader], [], [], DEADLINE_S)[0] and os.read(leader, 65536):
                    pass
            os.close(leader)
            self.assertEqual(process.wait(DEADLINE_S), 0)
            found.append((folder / "found").read_text().splitlines())
        self.assertIn("terminal: [True, True, True]", found[0])
        self.assertEqual(found[0], found[1])
        self.assertEqual(found[0], found[2])


PROBE = r"""
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) printf("<%s>", argv[i]);
  sigset_t blocked;
  sigprocmask(SIG_BLOCK, NULL, &blocked);
  for (int n = 1; n < 65; ++n) {
    struct sigaction action;
    if (sigaction(n, NULL, &action) == 0)
      printf("%d: %d %d %x\n", n, sigismember(&blocked, n), action.sa_handler == SIG_IGN, action.sa_flags);
  }
  for (int fd = 0; fd < 64; ++fd) printf("%d", fcntl(fd, F_GETFD));
  fputs("error\n", stderr);
  return 42;
}
"""


if __name__ == "__main__":
    unittest.main()
