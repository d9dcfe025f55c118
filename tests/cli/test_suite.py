"""The suite on a few quick cases: forms, places, statuses, and that `check` says the same."""

import json
import os
import shutil
import unittest
import xml.etree.ElementTree

from program import ProgramTest, without_times

QUICK = ("--scenario", "buffer-broadcast", "--implementation", "ddp", "-n", "2", "--dtype", "float64")


class Suite(ProgramTest):
    def test_a_healthy_run_and_its_check(self) -> None:
        done = self.lockstep("suite", *QUICK, "--run-dir", "run")
        self.assertEqual((done.status, done.err), (0, ""), done)
        self.assertTrue(done.lines[0].startswith("lockstep "))
        self.assertTrue(done.lines[-1].startswith("   Summary"))
        self.assertNotIn("\x1b", done.out)
        self.assertNotIn("\r", done.out)
        run = self.directory / "run"
        saved = {name: (run / name).read_text() for name in ("report.json", "report.txt")}
        self.assertEqual(saved["report.txt"], done.out)
        report = json.loads(saved["report.json"])
        self.assertEqual((report["format"], report["verdict"], report["exit"]), ("lockstep-report/2", "pass", 0))
        self.assertEqual({case["verdict"] for case in report["cases"]}, {"pass"})
        self.assertIsNone(report["world_size"])

        for name in saved:
            (run / name).unlink()
        again = self.lockstep("check", "run")
        self.assertEqual((again.status, again.err), (0, ""), again)
        for name, text in saved.items():
            self.assertEqual(without_times((run / name).read_text()), without_times(text), name)

        shutil.move(run, self.directory / "elsewhere")
        self.assertEqual(self.lockstep("check", "elsewhere").status, 0)
        one = report["cases"][0]["id"]
        self.assertEqual(self.lockstep("check", f"elsewhere/cases/{one}").status, 0)

    def test_json_and_nothing_else_on_stdout(self) -> None:
        done = self.lockstep("suite", *QUICK, "--format", "json", "--run-dir", "run")
        self.assertEqual(done.status, 0, done)
        self.assertEqual(json.loads(done.out)["verdict"], "pass")
        self.assertEqual(done.out, (self.directory / "run" / "report.json").read_text())

    def test_mutants_in_junit(self) -> None:
        done = self.lockstep("suite", "--implementation", "mutant/sum_for_mean", "--format", "junit")
        self.assertEqual(done.status, 0, done)
        root = xml.etree.ElementTree.fromstring(done.out.encode())
        self.assertEqual((root.get("failures"), root.get("errors")), ("0", "0"))
        self.assertGreaterEqual(int(root.get("tests")), 1)
        runs = list((self.directory / ".lockstep").iterdir())
        self.assertEqual(len(runs), 1)
        report = json.loads((runs[0] / "report.json").read_text())
        mutants = [mutant for case in report["cases"] for mutant in case["mutants"]]
        self.assertEqual([(m["name"], m["got"], m["culprits"]) for m in mutants], [("sum_for_mean", ["LS506"], [])])

    def test_concise_has_no_line_where_nothing_is_found(self) -> None:
        done = self.lockstep("suite", *QUICK, "--format", "concise")
        self.assertEqual((done.status, done.out), (0, ""), done)

    def test_nothing_applicable(self) -> None:
        # The mutants of the one scenario have no cell in the other.
        done = self.lockstep("suite", "--scenario", "buffer-broadcast", "--implementation", "mutant/sum_for_mean")
        self.assertEqual(done.status, 77, done)


class RunDirectory(ProgramTest):
    def test_must_be_new_or_empty(self) -> None:
        (self.directory / "mine").mkdir()
        (self.directory / "mine" / "thesis.tex").write_text("text")
        self.assert_refused(self.lockstep("suite", "--run-dir", "mine"), "mine")
        self.assertEqual(os.listdir(self.directory / "mine"), ["thesis.tex"])

    def test_where_nothing_can_be_written(self) -> None:
        self.assert_refused(self.lockstep("suite", "--run-dir", "/proc/lockstep"), "/proc/lockstep")


class Terminal(ProgramTest):
    def test_live_line_and_color(self) -> None:
        done = self.on_terminal("suite", *QUICK)
        self.assertEqual(done.status, 0, done.out)
        self.assertIn("\r\x1b[K   RUNNING", done.out)
        self.assertIn("\x1b[32mPASS\x1b[0m", done.out)

    def test_no_color(self) -> None:
        done = self.on_terminal("suite", *QUICK, NO_COLOR="1")
        self.assertEqual(done.status, 0, done.out)
        self.assertNotIn("\x1b[32m", done.out)

    def test_dumb_terminal_moves_no_cursor(self) -> None:
        done = self.on_terminal("suite", *QUICK, TERM="dumb")
        self.assertEqual(done.status, 0, done.out)
        self.assertNotIn("\x1b", done.out)


if __name__ == "__main__":
    unittest.main()
