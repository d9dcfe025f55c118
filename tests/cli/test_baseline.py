"""`--baseline`: what an earlier report has is no error any more; how a job ends always is."""

import json
import pathlib
import shutil
import subprocess
import unittest

from program import Done, ProgramTest

FINDINGS = pathlib.Path(__file__).resolve().parents[2] / "fixtures" / "histories" / "findings"


class BaselineTest(ProgramTest):
    def saved(self, code: str) -> str:
        """Its directory, with a report."""
        (self.directory / code).mkdir()
        subprocess.run(["tar", "xJf", str(FINDINGS / f"{code}.tar.xz")], cwd=self.directory / code, check=True)
        self.assertEqual(self.lockstep("check", code).status, 1)
        shutil.copy(self.directory / code / "report.json", self.directory / f"{code}.json")
        return code

    def check(self, code: str, baseline: str) -> Done:
        return self.lockstep("check", code, "--format", "json", "--baseline", f"{baseline}.json")

    def test_what_is_known_is_a_note(self) -> None:
        done = self.check(self.saved("LS203"), "LS203")
        self.assertEqual(done.status, 0, done)
        report = json.loads(done.out)
        self.assertEqual([(f["code"], f["severity"]) for f in report["findings"]], [("LS203", "note")])
        self.assertEqual(report["verdict"], "pass")
        self.assertIn("1 of its findings is known here", done.err)

    def test_how_a_job_ends_is_never_hidden(self) -> None:
        self.assertEqual(self.check(self.saved("LS101"), "LS101").status, 1)
        self.assertEqual(self.check(self.saved("LS303"), "LS303").status, 1)

    def test_what_is_gone_is_told(self) -> None:
        self.saved("LS101")
        done = self.check(self.saved("LS203"), "LS101")
        self.assertEqual(done.status, 1)
        self.assertIn("no longer found:\n  LS101: ", done.err)

    def test_the_text_of_the_line_counts_and_not_its_number(self) -> None:
        code = self.saved("LS203")
        path = self.directory / "LS203.json"
        before = json.loads(path.read_text())
        for site in before["findings"][0]["sites"]:
            site["line"] += 7
            site["file"] = "/elsewhere/" + site["file"]
        path.write_text(json.dumps(before))
        texts = any("text" in site for site in before["findings"][0]["sites"])
        self.assertEqual(self.check(code, "LS203").status, 0 if texts else 1)

    def test_what_is_no_report_is_refused(self) -> None:
        (self.directory / "bad.json").write_text("[1]")
        for name in ("bad", "absent"):
            self.assert_refused(self.lockstep("run", "-n", "2", "--baseline", f"{name}.json", "--", "true"), "baseline")


if __name__ == "__main__":
    unittest.main()
