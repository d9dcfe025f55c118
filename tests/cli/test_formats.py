"""What `check` prints for code hosts: SARIF against its schema, JUnit and GitLab's list as their readers parse them."""

import json
import os
import pathlib
import unittest
import xml.etree.ElementTree

from program import ProgramTest

try:
    import jsonschema
except ImportError:  # Only the Python of LOCKSTEP_PYTHON is sure to have it.
    jsonschema = None

# The standard's own, oasis-tcs/sarif-spec, sarif-2.1/schema, at e0583813964ec43cea53b6b531b402866095ed1f.
SCHEMA = pathlib.Path(__file__).resolve().parents[1] / "golden" / "sarif-schema-2.1.0.json"


class FormatsTest(ProgramTest):
    def setUp(self) -> None:
        super().setUp()
        self.assertEqual(self.lockstep("run", "-n", "2", "--run-dir", "run", "--", "sh", "-c", "exit $RANK").status, 1)

    def check(self, form: str) -> str:
        done = self.lockstep("check", "run", "--format", form)
        self.assertEqual(done.status, 1, done.err)
        return done.out

    @unittest.skipIf(jsonschema is None, "no jsonschema here")
    def test_sarif_is_that_of_the_standard(self) -> None:
        sarif = json.loads(self.check("sarif"))
        jsonschema.validate(sarif, json.loads(SCHEMA.read_text()))
        (result,) = [result for result in sarif["runs"][0]["results"] if result["kind"] == "fail"]
        self.assertEqual((result["ruleId"], result["properties"]["culprits"]), ("LS101", [1]))
        self.assertEqual(sarif["runs"][0]["tool"]["driver"]["version"], os.environ["LOCKSTEP_VERSION"])

    def test_each_form_names_the_finding(self) -> None:
        self.assertEqual(json.loads(self.check("gitlab"))[0]["check_name"], "LS101")
        self.assertRegex(self.check("github"), r"(?m)^::error title=LS101 .*::rank 1 exited with status 1")
        self.assertIn("**error[LS101]** rank 1 exited with status 1", self.check("markdown"))
        failures = xml.etree.ElementTree.fromstring(self.check("junit")).iter("failure")
        self.assertEqual([failure.get("type") for failure in failures], ["LS101"])


if __name__ == "__main__":
    unittest.main()
