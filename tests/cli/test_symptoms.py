"""The table of symptoms in docs/run.md says what the table of the programs says, which is what runs are held to."""

import pathlib
import re
import shlex
import sys
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "fixtures" / "programs"))

import table  # noqa: E402

START = ["lockstep", "run"]


def rows() -> list[list[str]]:
    lines = (SOURCE / "docs" / "run.md").read_text(encoding="utf-8").splitlines()
    begin = lines.index("| symptom | without lockstep | with it | try it |") + 2
    found = []
    for line in lines[begin:]:
        if not line.startswith("|"):
            return found
        found.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return found


def row_of(command: str) -> table.Row:
    words = shlex.split(command.strip("`"))
    at = words.index("--") + 2
    program, arguments = pathlib.Path(words[at]), " ".join(words[at + 1:])
    [row] = [r for r in table.ROWS if r.program == program.name and r.arguments == arguments]
    ranks = [] if row.launcher == table.ITSELF else ["-n", "2"]
    expected = [*START, *row.options, *ranks, "--", "python", f"fixtures/programs/{row.program}", *row.arguments.split()]
    assert words == expected, (words, expected)
    return row


class Symptoms(unittest.TestCase):
    def test_rows(self) -> None:
        seen = set()
        for symptom, without, with_it, command in rows():
            with self.subTest(symptom):
                row = row_of(command)
                seen.add(row.name)
                code, culprits = row.expected(2)
                who = "rank " + ", ".join(map(str, sorted(culprits))) if culprits else "no rank"
                self.assertEqual(without, row.without)
                self.assertTrue(re.match(rf"{code}, {who}: \S", with_it), with_it)
        self.assertGreaterEqual(len(seen), 10)


if __name__ == "__main__":
    unittest.main()
