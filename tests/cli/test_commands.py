"""What the program says without starting a single process."""

import os
import re
import unittest

from program import ProgramTest


class Help(ProgramTest):
    def test_help_names_the_commands(self) -> None:
        done = self.lockstep("--help")
        self.assertEqual((done.status, done.err), (0, ""))
        for command in ("suite", "run", "check", "clean", "explain"):
            self.assertIn(command, done.out)

    def test_every_command_has_help(self) -> None:
        for command in ("suite", "run", "check", "clean", "explain"):
            done = self.lockstep(command, "--help")
            self.assertEqual((done.status, done.err), (0, ""))
            self.assertGreater(len(done.lines), 3)

    def test_version(self) -> None:
        done = self.lockstep("--version")
        self.assertEqual((done.status, done.out, done.err), (0, f"lockstep {os.environ['LOCKSTEP_VERSION']}\n", ""))


class Usage(ProgramTest):
    def test_no_command(self) -> None:
        self.assert_refused(self.lockstep())

    def test_unknown_command(self) -> None:
        self.assert_refused(self.lockstep("frobnicate"))

    def test_unknown_option(self) -> None:
        self.assert_refused(self.lockstep("suite", "--frobnicate"), "--frobnicate")

    def test_value_that_does_not_exist(self) -> None:
        for option, known in (("--format", "junit"), ("--color", "never")):
            self.assert_refused(self.lockstep("suite", option, "frobnicate"), option, known)

    def test_ranks_must_be_a_world_size(self) -> None:
        for value in ("0", "-1", "two", "4000000000"):
            with self.subTest(value):
                self.assert_refused(self.lockstep("suite", "-n", value), value)

    def test_seed_must_be_a_number(self) -> None:
        self.assert_refused(self.lockstep("suite", "--seed", "monday"), "monday")

    def test_unknown_names_are_told_with_those_that_exist(self) -> None:
        self.assert_refused(self.lockstep("suite", "--scenario", "frobnicate"), "frobnicate", "buffer-broadcast")
        self.assert_refused(self.lockstep("suite", "--implementation", "frobnicate"), "frobnicate", "ddp")
        self.assert_refused(self.lockstep("suite", "--dtype", "frobnicate"), "frobnicate", "float64")

    def test_check_needs_its_argument(self) -> None:
        self.assert_refused(self.lockstep("check"))


class Explain(ProgramTest):
    def test_a_code(self) -> None:
        done = self.lockstep("explain", "LS301")
        self.assertEqual((done.status, done.err), (0, ""))
        self.assertTrue(done.out.startswith("LS301 (absent-rank): "), done.out)
        for heading in ("Symptom", "What it means", "Its report", "Causes", "What to look at", "Fix"):
            self.assertIn(heading, done.lines)
        self.assertIn("    error[LS301]: rank 1 has not entered all_reduce 0#7; rank 0 waits in it", done.lines)

    def test_without_a_code_all_are_listed(self) -> None:
        done = self.lockstep("explain")
        self.assertEqual((done.status, done.err), (0, ""))
        self.assertTrue(done.lines[0].startswith("LS101  rank-died "), done.out)
        self.assertGreater(len(done.lines), 50)

    def test_lower_case_is_the_same(self) -> None:
        self.assertEqual(self.lockstep("explain", "ls301"), self.lockstep("explain", "LS301"))

    def test_unknown_code_is_told_with_those_that_exist(self) -> None:
        self.assert_refused(self.lockstep("explain", "LS999"), "LS999", "LS301")


class Check(ProgramTest):
    def test_no_such_directory(self) -> None:
        self.assert_refused(self.lockstep("check", "missing/run"), "missing/run")
        self.assertEqual(os.listdir(self.directory), [])

    def test_a_file(self) -> None:
        (self.directory / "file").write_text("text")
        self.assert_refused(self.lockstep("check", "file"), "file")

    def test_a_directory_that_is_no_run_stays_as_it_is(self) -> None:
        (self.directory / "photos").mkdir()
        self.assert_refused(self.lockstep("check", "photos"), "photos")
        self.assertEqual(os.listdir(self.directory / "photos"), [])

    def test_a_run_whose_plan_is_no_json(self) -> None:
        (self.directory / "run").mkdir()
        (self.directory / "run" / "run.json").write_text('{"ranks": ')
        self.assert_refused(self.lockstep("check", "run"), "run.json")


class List(ProgramTest):
    def ids(self, *filters: str) -> list[str]:
        done = self.lockstep("suite", "--list", *filters)
        self.assertEqual((done.status, done.err), (0, ""), done)
        ids = [word for line in done.lines for word in line.split() if re.match(r"[\w-]+/\S+/w\d+/", word)]
        self.assertEqual(len(ids), len(set(ids)), "a case is listed twice")
        return ids

    def test_lists_cases_and_starts_nothing(self) -> None:
        ids = self.ids()
        self.assertLessEqual({"gradient-equivalence", "buffer-broadcast", "clean-exit", "sampler-disjointness"},
                             {i.split("/")[0] for i in ids})
        worlds = {int(re.search(r"/w(\d+)/", i)[1]) for i in ids}
        self.assertLessEqual({2, 3, 5}, worlds)
        self.assertEqual(os.listdir(self.directory), [])

    def test_filters(self) -> None:
        everything = self.ids()
        for filters, keeps in (
            (["--scenario", "buffer-broadcast"], lambda i: i.startswith("buffer-broadcast/")),
            (["--implementation", "ddp"], lambda i: "/ddp/" in i),
            (["-n", "2", "--ranks", "5"], lambda i: "/w2/" in i or "/w5/" in i),
            (["--dtype", "float64"], lambda i: "/float64" in i),
            (["--scenario", "buffer-broadcast", "-n", "3"], lambda i: i.startswith("buffer-") and "/w3/" in i),
        ):
            with self.subTest(filters):
                kept = self.ids(*filters)
                self.assertTrue(kept)
                self.assertEqual(kept, [i for i in everything if keeps(i)])

    def test_mutants_are_listed_with_what_must_be_said_of_them(self) -> None:
        done = self.lockstep("suite", "--mutants")
        self.assertEqual((done.status, done.err), (0, ""))
        for name, code in (("sum_for_mean", "LS506"), ("extra_forward", "LS207"), ("no_buffer_broadcast", "LS402")):
            self.assertTrue(any(name in line and code in line for line in done.lines), done.out)
        self.assertEqual(os.listdir(self.directory), [])


if __name__ == "__main__":
    unittest.main()
