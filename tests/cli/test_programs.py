"""The library used alone: fixtures/programs/gan.cc on several ranks loses what it loses in one process."""

import os
import pathlib
import subprocess
import tempfile
import unittest

GAN = os.environ["LOCKSTEP_GAN"]


def losses(world: int) -> list[list[float]]:
    with tempfile.TemporaryDirectory() as directory:
        meeting = pathlib.Path(directory) / "rendezvous"
        ranks = [
            subprocess.Popen([GAN, meeting, str(rank), str(world)], stdout=subprocess.PIPE, text=True)
            for rank in range(world)
        ]
        try:
            texts = [rank.communicate(timeout=100)[0] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
    assert [rank.returncode for rank in ranks] == [0] * world
    return [[float(word) for word in line.split()] for line in texts[0].splitlines()]


class Gan(unittest.TestCase):
    def test_losses_are_those_of_one_process(self) -> None:
        alone = losses(1)
        self.assertEqual([len(step) for step in alone], [3] * 5)
        self.assertNotEqual(alone[0], alone[-1])
        for world in (2, 3):
            for mine, right in zip(losses(world), alone, strict=True):
                for value, expected in zip(mine, right, strict=True):
                    self.assertAlmostEqual(value, expected, delta=1e-11 * max(1, abs(expected)))


if __name__ == "__main__":
    unittest.main()
