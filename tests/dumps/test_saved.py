"""The labelled dumps of fixtures/dumps: the rank at fault is named, and nobody else.
usage: test_saved.py (LOCKSTEP_PROGRAM says which lockstep)."""
import json
import os
import pathlib
import sys
import tarfile
import tempfile
import types
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import judged

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "fixtures" / "dumps"


def checked(name):
    with tempfile.TemporaryDirectory(prefix="lockstep-dumps-") as scratch:
        with tarfile.open(FOLDER / f"{name}.tar.xz") as archive:
            archive.extractall(scratch, filter="data")
        return judged.check(os.environ["LOCKSTEP_PROGRAM"], scratch)


def judge(name, label):
    status, report = checked(name)
    job = types.SimpleNamespace(healthy=label["fault"] is None, fault=label["fault"], culprit=label["rank"],
                                flavour=label["backend"])
    return judged.verdict(job, status, report), report


class SavedDumps(unittest.TestCase):
    def test_each_as_its_label_says(self):
        labels = json.loads((FOLDER / "labels.json").read_text(encoding="utf-8"))
        self.assertEqual(len(labels), 52)
        for name, label in labels.items():
            with self.subTest(name):
                result, report = judge(name, label)
                self.assertEqual(result, label.get("judged", "right"), [f["headline"] for f in report["findings"]])

    def test_what_pytorch_wrote_over_gloo(self):
        status, report = checked("real-gloo")
        finding, = report["findings"]
        self.assertEqual((status, finding["code"], finding["seq"], finding["affected"]), (1, "LS301", 7, [0]))


if __name__ == "__main__":
    unittest.main()
