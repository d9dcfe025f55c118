"""pytest plugin of lockstep: one test, run once per rank under `lockstep run`.

    @pytest.mark.world_size(4)            # or a list: one test for each size
    def test_all_reduce(process_group): ...

The pytest that you start (under xdist, each worker) runs such a test by `lockstep run -n 4 -- python -m pytest THE TEST`:
fixtures, parameters and assertions are those of every rank. It passes if it passes on all ranks and lockstep finds nothing.
Otherwise there is one failure, with what lockstep found and the traceback of each rank; what nobody can decide fails, too.

    @pytest.mark.world_size(4, timeout=60, options=["--stall-limit", "20"])

timeout   seconds for the whole test, after which the job is ended and judged; ini `lockstep_timeout`, default 300
options   more options of `lockstep run`

Environment: LOCKSTEP_PROGRAM, the program where it is not in PATH. RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
are set on each rank.
"""

import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest

RECORDS = "LOCKSTEP_PYTEST_RECORDS"  # In the ranks: the folder for what each test came to.
GRACE_S = 60  # From the limit until the report is there.


def pytest_addoption(parser):
    parser.addini("lockstep_timeout", "seconds for a test of several ranks (default 300)", default="300")


def pytest_configure(config):
    config.addinivalue_line("markers", "world_size(n, timeout=None, options=()): run the test once per rank under lockstep")
    if RECORDS in os.environ:
        config.pluginmanager.register(OfARank(pathlib.Path(os.environ[RECORDS])))
    else:
        config.pluginmanager.register(OfTheUser())


def pytest_generate_tests(metafunc):
    marker = metafunc.definition.get_closest_marker("world_size")
    if marker is None:
        return
    sizes = marker.args[0] if marker.args else None
    listed = list(sizes) if isinstance(sizes, (list, tuple)) else [sizes]
    if not listed or not all(isinstance(size, int) and size > 0 for size in listed):
        raise pytest.UsageError(f"{metafunc.definition.nodeid}: world_size({sizes!r}): need a number of ranks, or a list of them")
    if isinstance(sizes, (list, tuple)):
        metafunc.fixturenames.append("_lockstep_world_size")
        metafunc.parametrize("_lockstep_world_size", listed, ids=[f"world={size}" for size in listed])


@pytest.fixture
def _lockstep_world_size(request):
    return request.param


class OfARank:
    """Runs the test as any other, and writes down what it came to."""

    def __init__(self, folder: pathlib.Path):
        self.path = folder / f"{os.environ['RANK']}.json"
        self.phases = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report):
        self.phases.append({"when": report.when, "outcome": report.outcome, "wasxfail": getattr(report, "wasxfail", None),
                            "text": report.longreprtext, "sections": report.sections,
                            "skipped": report.longrepr[2] if isinstance(report.longrepr, tuple) else ""})
        self.write()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collectreport(self, report):
        if report.failed:
            self.phases.append({"when": "collect", "outcome": "failed", "wasxfail": None, "text": report.longreprtext,
                                "sections": [], "skipped": ""})
            self.write()

    def write(self):
        unfinished = self.path.with_suffix(".part")
        unfinished.write_text(json.dumps(self.phases))
        unfinished.rename(self.path)


@dataclasses.dataclass
class Rank:
    number: int
    phases: list

    def outcome(self) -> str:
        """As pytest counts a test: the worst of its phases."""
        outcomes = [phase["outcome"] for phase in self.phases]
        if "failed" in outcomes:
            return "failed"
        if not any(phase["when"] == "teardown" for phase in self.phases):
            return "unfinished"
        return "skipped" if "skipped" in outcomes else "passed"

    def text(self) -> str:
        if self.outcome() == "unfinished":
            return "did not come to the end of the test"
        return "\n".join(phase["text"] for phase in self.phases if phase["outcome"] == "failed")

    def first(self, name: str):
        return next((phase[name] for phase in self.phases if phase[name]), None)


class OfTheUser:
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item, nextitem):
        if item.get_closest_marker("world_size") is None:
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        item.ihook.pytest_runtest_logreport(report=run(item))
        item.session._setupstate.teardown_exact(nextitem)  # Of the tests before, as after any other test.
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True


def run(item) -> pytest.TestReport:
    marker = item.get_closest_marker("world_size")
    spec = getattr(item, "callspec", None)
    world = spec.params.get("_lockstep_world_size", marker.args[0]) if spec else marker.args[0]
    timeout = marker.kwargs.get("timeout") or float(item.config.getini("lockstep_timeout"))
    begun = time.time()
    with tempfile.TemporaryDirectory(prefix="lockstep-pytest-") as scratch:
        folder = pathlib.Path(scratch)
        status, said = lockstep(item, world, timeout, marker.kwargs.get("options", ()), folder)
        ranks = [Rank(number, phases_of(folder / f"{number}.json")) for number in range(world)]
        outcome, longrepr = judged(item, ranks, status, said, folder / "run")
        if outcome == "failed":
            longrepr += f"\nagain: lockstep check {kept(item, folder / 'run')}"
    report = pytest.TestReport(nodeid=item.nodeid, location=item.location, keywords={name: 1 for name in item.keywords},
                               outcome=outcome, longrepr=longrepr, when="call", sections=sections_of(ranks),
                               duration=time.time() - begun, start=begun, stop=time.time())
    reason = next((rank.first("wasxfail") for rank in ranks if rank.first("wasxfail") is not None), None)
    if reason is not None and outcome != "failed":
        report.wasxfail = reason
    return report


def kept(item, run_folder: pathlib.Path) -> pathlib.Path:
    """Where the run lies until the same test fails again."""
    keep = item.config.rootpath / ".lockstep" / "pytest" / re.sub(r"[^\w.=-]+", "_", item.nodeid)[-200:]
    shutil.rmtree(keep, ignore_errors=True)
    keep.parent.mkdir(parents=True, exist_ok=True)
    if run_folder.exists():
        shutil.move(run_folder, keep)
    return keep


def lockstep(item, world: int, timeout: float, options, folder: pathlib.Path) -> tuple:
    """The status, and what was printed."""
    program = os.environ.get("LOCKSTEP_PROGRAM") or shutil.which("lockstep")
    if program is None:
        raise pytest.UsageError("world_size: lockstep is not in PATH; have no program to run ranks with; install it, or set "
                                "LOCKSTEP_PROGRAM")
    command = [program, "run", "-n", str(world), "--color", "never", "--run-dir", str(folder / "run"),
               "--time-limit", f"{timeout:g}", *options, "--",
               sys.executable, "-m", "pytest", *arguments_of(item)]
    environment = {**os.environ, RECORDS: str(folder)}
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_CURRENT_TEST", "PYTEST_ADDOPTS"):
        environment.pop(name, None)
    process = subprocess.Popen(command, cwd=item.config.invocation_params.dir, env=environment, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    try:
        said = process.communicate(timeout=timeout + GRACE_S)[0]
        return process.returncode, said
    except BaseException:  # Also the user's key: lockstep ends its ranks when it is asked to.
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=GRACE_S)
        raise


def arguments_of(item) -> list:
    """This one test, as the user configured pytest; what chooses tests or shares them out is undone."""
    config = item.config
    me = config.pluginmanager.get_name(sys.modules[__name__])
    arguments = ["--rootdir", str(config.rootpath), "-p", me, "-p", "no:cacheprovider", "-k", "", "-m", "", "-q", "--no-header",
                 "--no-summary"]
    if config.inipath is not None:
        arguments += ["-c", str(config.inipath)]
    if config.pluginmanager.hasplugin("xdist"):
        arguments += ["-n", "0", "--dist", "no"]
    if config.option.capture == "no":
        arguments += ["--capture", "no"]
    path, *names = item.nodeid.split("::", 1)
    return [*arguments, "::".join([str(config.rootpath / path), *names])]


def phases_of(path: pathlib.Path) -> list:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return []


def judged(item, ranks: list, status, said: str, run_folder: pathlib.Path) -> tuple:
    outcomes = {rank.outcome() for rank in ranks}
    if status == 0 and outcomes == {"passed"}:
        return "passed", None
    if status == 0 and outcomes == {"skipped"}:
        return "skipped", (str(item.path), item.location[1] or 0, ranks[0].first("skipped") or "skipped on all ranks")
    found = finding_in(run_folder, said)
    parts = [headline(ranks, found), found]
    texts = {}
    for rank in ranks:
        texts.setdefault(rank.text() or f"{rank.outcome()} there", []).append(rank.number)
    for text, numbers in texts.items():
        parts += [f" {name_of(numbers)} ".center(100, "-"), text]
    return "failed", "\n".join(part for part in parts if part)


def headline(ranks: list, found: str) -> str:
    failed = [rank.number for rank in ranks if rank.outcome() == "failed"]
    what = f"{name_of(failed)} of {len(ranks)} failed" if failed else f"none of {len(ranks)} ranks failed by itself"
    codes = ", ".join(re.findall(r"^error\[(LS\d+)\]", found, re.MULTILINE))
    return f"{codes}; {what}" if codes else what


def name_of(numbers: list) -> str:
    return f"rank{'s' if len(numbers) != 1 else ''} {','.join(map(str, numbers))}"


def finding_in(run_folder: pathlib.Path, said: str) -> str:
    """From the report what was found, or why that is not known; without one, all that was printed."""
    try:
        report = json.loads((run_folder / "report.json").read_text())
    except (OSError, ValueError):
        return said
    found = [block_of(finding) for finding in report["findings"] if finding["severity"] != "note"]
    if not found and report["verdict"] == "undecided":
        found = ["\n".join((*last_activity(said), f"undecided: {report['reason']}"))]
    return "\n\n".join(found)


def block_of(finding: dict) -> str:
    """A finding of the report for people, as far as a failed test needs it."""
    lines = [f"{finding['severity']}[{finding['code']}]: {finding['headline']}"]
    if finding["culprits"]:
        lines.append(f"  culprit    {name_of(finding['culprits'])}")
    lines += [f"  {'' if i else 'evidence':10} {line['text']}" for i, line in enumerate(finding["evidence"])]
    lines += [f"  {'' if i else 'where':10} rank {site['rank']}  {site['role']}  {site['file']}:{site['line']}  {site['function']}"
              for i, site in enumerate(finding["sites"])]
    cause = finding["cause"]
    lines += [f"  {'cause':10} {cause['confidence']}: {cause['text']}"] if cause["text"] else []
    lines += [f"  {'help':10} {finding['help']}"] if finding["help"] else []
    return "\n".join(line.rstrip() for line in lines)


def last_activity(said: str) -> list:
    """The last notice of what the ranks were doing."""
    lines = said.splitlines()
    begin = max((i for i, line in enumerate(lines) if line.strip().startswith(("STALLED", "STOPPING"))), default=len(lines))
    end = next((i for i, line in enumerate(lines) if i > begin and not line.startswith("            ")), len(lines))
    return lines[begin:end]


def sections_of(ranks: list) -> list:
    """Each once: a phase repeats those of the phases before it."""
    return list(dict.fromkeys((f"rank {rank.number}: {title}", text) for rank in ranks for phase in rank.phases
                              for title, text in phase["sections"] if text))
