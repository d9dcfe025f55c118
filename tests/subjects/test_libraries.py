"""Subjects in C++: shared libraries that know nothing of this repository but the installed header.

Method: what `cmake --install` brings into an empty prefix, and a project of its own that finds it there, as
examples/cpp_subject does. The suite is the installed one. The example is right, as
LibTorch's own sampler is; the others of fixtures/subjects/*.cc have one mistake each, at the line that says so."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from suite import FIXTURES, PYTHON, SubjectTest, codes_of, missed_mutants, processes_with

EXAMPLE = FIXTURES.parents[1] / "examples" / "cpp_subject"
LIBRARIES = ("summed", "last_bucket", "misbehaving", "library_sampler", "norm")
NORMS = ("UNWEIGHTED", "SILENT")  # Of norm.cc, which is right without.
CASE = ("--scenario", "clean-exit", "-n", "2")


def run(*words, **environment):
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **environment}, check=False)
    if done.returncode != 0:
        raise AssertionError(" ".join(map(str, words)) + "\n" + done.stdout + done.stderr)


class Libraries(SubjectTest):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="lockstep-libraries-")
        cls.addClassCleanup(scratch.cleanup)
        root = pathlib.Path(scratch.name)
        cls.libraries = root / "build"
        cls.program = str(root / "prefix" / "bin" / "lockstep")
        run("cmake", "--install", os.environ["LOCKSTEP_BUILD_DIR"], "--prefix", root / "prefix", "--component", "lockstep")
        shutil.copytree(EXAMPLE, root / "project")
        listed = [(root / "project" / "CMakeLists.txt").read_text()]
        for name in LIBRARIES:
            shutil.copy(FIXTURES / f"{name}.cc", root / "project")
            listed.append(f"lockstep_add_subject(NAME {name} SOURCES {name}.cc)")
        for how in NORMS:
            listed.append(f"lockstep_add_subject(NAME norm_{how} SOURCES norm.cc)")
            listed.append(f"target_compile_definitions(norm_{how} PRIVATE {how})")
        (root / "project" / "CMakeLists.txt").write_text("\n".join(listed) + "\n")
        run("cmake", "-S", root / "project", "-B", cls.libraries, f"-DCMAKE_PREFIX_PATH={root / 'prefix'}", LOCKSTEP_PYTHON=PYTHON)
        run("cmake", "--build", cls.libraries, "--parallel", "2")

    def library(self, name):
        return str(self.libraries / f"lib{name}.so")

    def line_of_mistake(self, name):
        lines = (FIXTURES / f"{name}.cc").read_text().splitlines()
        return f"{name}.cc:{next(i for i, line in enumerate(lines, 1) if '// MISTAKE' in line)}"

    def test_right_one_passes(self):
        done, report = self.suite(self.library("my_ddp"))
        self.assertEqual((done.returncode, codes_of(report), missed_mutants(report)), (0, set(), set()), done.stdout)
        self.assertIn("my_ddp.MyDDP: shared library", done.stdout)
        reasons = [case["reason"] for case in report["cases"] if case["verdict"] == "skipped"]
        self.assertTrue(any("Contract::no_sync" in reason for reason in reasons), reasons)

    def test_sampler_of_libtorch_passes(self):
        done, report = self.suite(self.library("library_sampler"), "-n", "3")
        self.assertEqual((done.returncode, codes_of(report), missed_mutants(report)), (0, set(), set()), done.stdout)

    def test_wrong_ones_are_caught(self):
        for name, codes in (("summed", {"LS506"}), ("last_bucket", {"LS403", "LS407"})):
            with self.subTest(name):
                self.setUp()
                done, report = self.suite(self.library(name), "-n", "3")
                self.assertEqual(done.returncode, 1, done.stdout)
                self.assertTrue(codes_of(report) & codes, codes_of(report))
                self.assertIn(self.line_of_mistake(name), done.stdout)

    def test_batch_norms(self):
        done, report = self.suite(self.library("norm"))
        self.assertEqual((done.returncode, codes_of(report), missed_mutants(report)), (0, set(), set()), done.stdout)
        passed = {case["id"] for case in report["cases"] if case["verdict"] == "pass"}
        self.assertTrue(any("bn_cumulative" in case for case in passed) and any("rows=empty" in case for case in passed), passed)
        done, report = self.suite(self.library("norm_UNWEIGHTED"), "-n", "3")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertTrue(codes_of(report) & {"LS502", "LS505"}, codes_of(report))
        self.assertRegex(done.stdout, r"total issues \d+ all_reduce at .*norm.cc")  # Behind the helper that makes all calls.
        done, report = self.suite(self.library("norm_SILENT"), "-n", "2")  # The host's own calls are not the subject's.
        self.assertNotIn("pass", {case["verdict"] for case in report["cases"]}, done.stdout)
        self.assertIn("LS502", codes_of(report))
        self.assertNotIn("average_by_host", done.stdout)

    def misbehave(self, how):
        mark = f"LOCKSTEP_TEST_MARK_{os.getpid()}_{how}"
        self.setUp()
        done, _report = self.suite(self.library("misbehaving"), *CASE, MISBEHAVE=how, LOCKSTEP_TEST_MARK=mark)
        self.assertEqual(processes_with(mark), [], done.stdout)
        return done

    def test_misbehaving_ones(self):
        rows = {
            "": ((0,), "pass"), "print": ((0,), "pass"), "throw": ((1,), self.line_of_mistake("misbehaving")),
            "crash": ((1,), "LS101"), "exit": ((1,), "LS101"), "hang": ((2,), "no answer within"),
            "fork": ((1, 2), ""),  # The child trains on, over its parent's connections.
        }
        for how, (statuses, words) in rows.items():
            with self.subTest(how):
                done = self.misbehave(how)
                self.assertIn(done.returncode, statuses, done.stdout)
                self.assertIn(words, done.stdout)

    def test_what_cannot_be_served(self):
        (self.directory / "text.so").write_text("no library")
        for name, kind, words in (
            ("./nothing.so", "ddp", "need a shared library"),
            ("./text.so", "ddp", "need a shared library that finds"),
            (self.library("my_ddp"), "sampler", "serves nothing as sampler"),
        ):
            with self.subTest(name):
                done, _report = self.suite(name, "--as", kind)
                self.assertEqual(done.returncode, 125, done.stdout + done.stderr)
                self.assertIn(words, done.stderr)


if __name__ == "__main__":
    unittest.main()
