"""Runs every `$ lockstep ...` line of README.md, in order and in one directory, as a reader would.

Lines of a block that do not begin with `$ ` are output, shown and not compared. A command ends with status 0 unless
its line ends with `# exit N`.
"""

import os
import pathlib
import re
import subprocess
import unittest

from program import DEADLINE_S, PROGRAM, ProgramTest, environment

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"


def commands() -> list[tuple[str, int]]:
    blocks = re.findall(r"^```\w*\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ lockstep")]
    return [(line, int(m[1]) if (m := re.search(r"# exit (\d+)$", line)) else 0) for line in lines]


class Readme(ProgramTest):
    def test_commands(self) -> None:
        found = commands()
        self.assertGreaterEqual({line.split()[1] for line, _ in found}, {"suite", "check", "explain"})
        path = f"{pathlib.Path(PROGRAM).parent}:{os.environ['PATH']}"
        for line, status in found:
            with self.subTest(line):
                done = subprocess.run(
                    ["bash", "-c", line], cwd=self.directory, env=environment(PATH=path), capture_output=True,
                    timeout=DEADLINE_S, stdin=subprocess.DEVNULL, text=True,
                )
                self.assertEqual(done.returncode, status, f"{line}\n{done.stdout}{done.stderr}")
                self.assertNotEqual(done.stdout, "", line)


if __name__ == "__main__":
    unittest.main()
