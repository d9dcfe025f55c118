"""Runs every `$ lockstep ...` line of README.md and docs/, page by page, in order and in one directory, as a reader would.

A block below a comment that says where it comes from is held by test_pages.py.

Lines of a block that do not begin with `$ ` are output, shown and not compared. A command ends with status 0 unless
its line ends with `# exit N`.
"""

import os
import pathlib
import re
import subprocess
import unittest

from program import DEADLINE_S, PROGRAM, ProgramTest, environment

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PAGES = [SOURCE / "README.md", *sorted((SOURCE / "docs").rglob("*.md"))]


def commands(page: pathlib.Path) -> list[tuple[str, int]]:
    blocks = re.findall(r"^(<!-- .* -->\n)?```\w*\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line for origin, block in blocks if not origin for line in block.splitlines() if line.startswith("$ lockstep")]
    return [(line, int(m[1]) if (m := re.search(r"# exit (\d+)$", line)) else 0) for line in lines]


class Readme(ProgramTest):
    def test_commands(self) -> None:
        path = f"{pathlib.Path(PROGRAM).parent}:{os.environ['PATH']}"
        seen = set()
        for page in PAGES:
            directory = self.directory / page.stem
            directory.mkdir(exist_ok=True)
            for line, status in commands(page):
                seen.add(line.split()[2])
                with self.subTest(line, page=page.name):
                    done = subprocess.run(
                        ["bash", "-c", line[2:]], cwd=directory, env=environment(PATH=path), capture_output=True,
                        timeout=DEADLINE_S, stdin=subprocess.DEVNULL, text=True,
                    )
                    self.assertEqual(done.returncode, status, f"{line}\n{done.stdout}{done.stderr}")
                    self.assertNotEqual(done.stdout + done.stderr, "", line)
        self.assertGreaterEqual(seen, {"suite", "run", "check", "explain"})


if __name__ == "__main__":
    unittest.main()
