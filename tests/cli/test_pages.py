"""What README.md and docs/ show is what there is.

Goal: no report, program or row in them is typed by hand. Method: a line above a block of code says where it comes from.

    <!-- finding of fixtures/histories/NAME -->   what `lockstep check` says of that saved run: its first finding, or
                                                  why it is undecided
    <!-- report of fixtures/histories/NAME -->    all of it; a first line that begins with `$ ` stays as it is
    <!-- from PATH -->                            pieces of that file, with `...` between them

LS_UPDATE_GOLDEN=1 writes the reports anew; review the diff.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import textwrap
import unittest

from program import ProgramTest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
FINDINGS = SOURCE / "docs" / "findings"
PAGES = [SOURCE / "README.md", *sorted((SOURCE / "docs").rglob("*.md")), SOURCE / "checkers" / "README.md"]
BLOCK = re.compile(r"^<!-- (finding of|report of|from) (\S+) -->\n(```\w*\n)(.*?)^```$", re.MULTILINE | re.DOTALL)


class Pages(ProgramTest):
    def test_reports(self) -> None:
        seen = 0
        for page in PAGES:
            text = page.read_text(encoding="utf-8")
            for match in BLOCK.finditer(text):
                kind, name, opening, shown = match.groups()
                if kind == "from":
                    continue
                seen += 1
                with self.subTest(page=page.name, run=name):
                    said = self.said_of(SOURCE / f"{name}.tar.xz", whole=kind == "report of")
                    typed = re.match(r"\$ .*\n", shown)
                    said = (typed[0] if typed else "") + said
                    if "LS_UPDATE_GOLDEN" in os.environ:
                        block = f"<!-- {kind} {name} -->\n{opening}"
                        page.write_text(page.read_text(encoding="utf-8").replace(f"{block}{shown}```", f"{block}{said}```"),
                                        encoding="utf-8")
                        continue
                    self.assertEqual(shown, said)
        self.assertGreaterEqual(seen, 45)

    def said_of(self, archive: pathlib.Path, whole: bool) -> str:
        plan = json.loads(subprocess.run(["tar", "xJOf", archive, "run.json"], check=True, capture_output=True).stdout)
        run = pathlib.Path(".lockstep") / plan["id"]
        shutil.rmtree(self.directory / run, ignore_errors=True)  # cases of one suite have one id
        (self.directory / run).mkdir(parents=True)
        subprocess.run(["tar", "xJf", archive, "-C", self.directory / run], check=True)
        said = self.lockstep("check", "--color", "never", str(run)).out
        if whole:
            return said
        found = re.search(r"^(error|warning|note|undecided)\b.*?\n(?=\n)", said, re.MULTILINE | re.DOTALL)
        self.assertIsNotNone(found, said)
        return found[0]

    def test_programs(self) -> None:
        for page in PAGES:
            for kind, name, _, shown in BLOCK.findall(page.read_text(encoding="utf-8")):
                if kind != "from":
                    continue
                source = re.sub(r"  (#|//) SITE: .*", "", (SOURCE / name).read_text(encoding="utf-8"))
                for piece in shown.split("\n...\n"):
                    with self.subTest(page=page.name, piece=piece):
                        self.assertTrue(any(textwrap.indent(piece.rstrip(), " " * by) in source for by in (0, 4, 8, 12)))

    def test_mutants(self) -> None:
        """A page that names a mutant names one that must be reported with its code."""
        rows = [line.split() for line in self.lockstep("suite", "--mutants").out.splitlines()]
        expected = {row[0]: row[1] for row in rows if len(row) > 1}
        for page in FINDINGS.glob("LS*.md"):
            for name in re.findall(r"^lockstep suite --implementation mutant/(\w+)$", page.read_text(encoding="utf-8"),
                                   re.MULTILINE):
                with self.subTest(page=page.name):
                    self.assertEqual(expected.get(name), page.stem)


class Index(unittest.TestCase):
    def test_findings(self) -> None:
        """A row for each page, with the title of the page."""
        rows = dict(re.findall(r"^\| \[(LS\d+)\]\(LS\d+\.md\) \| (.*) \|$",
                               (FINDINGS / "README.md").read_text(encoding="utf-8"), re.MULTILINE))
        pages = {page.stem: page.read_text(encoding="utf-8") for page in FINDINGS.glob("LS*.md")}
        self.assertEqual(sorted(rows), sorted(pages))
        for code, text in pages.items():
            with self.subTest(code):
                self.assertRegex(text, rf"\A# {code} \([a-z0-9-]+\): {re.escape(rows[code])}\n")
                headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
                for heading in ("Symptom", "What it means", "Causes", "What to look at", "Fix"):
                    self.assertIn(heading, headings)


if __name__ == "__main__":
    unittest.main()
