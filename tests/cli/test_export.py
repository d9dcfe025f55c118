"""`export --to program`: what is written of saved runs, and what is refused."""

import pathlib
import subprocess
import unittest

from program import Done, ProgramTest

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "fixtures"


class ExportTest(ProgramTest):
    def export(self, name: str, *options: str) -> Done:
        folder = self.directory / name.replace("/", "-")
        if not folder.exists():
            folder.mkdir()
            of = FIXTURES if name.startswith("dumps/") else FIXTURES / "histories"
            subprocess.run(["tar", "xJf", str(of / f"{name}.tar.xz")], cwd=folder, check=True)
        return self.lockstep("export", folder.name, "--to", "program", *options)

    def plan_of(self, name: str, *options: str) -> tuple[str, dict]:
        """The program, which must be one, and what each of its ranks calls."""
        done = self.export(name, *options)
        self.assertEqual(done.status, 0, done)
        compile(done.out, name, "exec")
        calls = done.out[done.out.index("# What is called."):done.out.index("# How a rank ends")]
        names = {line.split(" = ")[0]: line.split(" = ")[0] for line in calls.splitlines() if line.startswith("c")}
        plan = calls[calls.index("PLAN = ") + len("PLAN = "):]
        return done.out, eval(plan, {"after": lambda call, *_: call, **names})

    def test_each_rank_makes_its_calls_in_its_functions_and_loops(self) -> None:
        text, plan = self.plan_of("hang-epochs")
        self.assertEqual(sorted(plan), [0, 1, 2])
        self.assertNotEqual(plan[0], plan[1])
        self.assertEqual(plan[0], plan[2])
        self.assertIn("LS305 again: rank 1 left the loop", text)
        self.assertRegex(text, r"def train\(at: tuple\) -> None:  # Trainer.train, epochs.py\n    for batch in rounds\(")
        self.assertNotIn("lockstep", text[text.index('"""\n\nimport'):])

    def test_of_the_fixed_twin_all_ranks_make_the_same_calls(self) -> None:
        for name in ("hang-epochs", "hang-two-groups", "mutant-extra-forward"):
            _, plan = self.plan_of(name, "--fixed")
            self.assertEqual(len({tuple(calls) for calls in plan.values()}), 1, name)

    def test_of_dumps_nothing_is_made(self) -> None:
        self.assert_refused(self.export("dumps/18-other-size"), "have dumps, which hold the last calls of each rank only")

    def test_it_is_written_where_it_is_asked_for(self) -> None:
        done = self.export("hang-epochs", "--out", "again.py")
        self.assertEqual((done.status, done.out), (0, "again.py\n"))
        self.assertTrue((self.directory / "again.py").read_text().startswith("#!/usr/bin/env python3\n"))

    def test_what_calls_cannot_show_is_refused(self) -> None:
        for name, why in (("findings/LS401", "LS401"), ("findings/LS104", "LS104"), ("healthy-exact", "no finding"),
                          ("hang-log-group", "LS209"), ("hang-evaluation-group", "LS301"),
                          ("hang-skipped-validation", "ranks in rounds 1 and 2 of the loop at line 18"),
                          ("hang-cached-data", "LS303")):
            done = self.export(name, "--out", "none.py")
            self.assert_refused(done, "no program can show this again: have", why, "need", "help: ")
            self.assertFalse((self.directory / "none.py").exists())


if __name__ == "__main__":
    unittest.main()
