"""Right subjects pass, and each wrong one is caught, with the line of its mistake within reach of the report.

Method: fixtures/subjects/right*.py and wrong.py, the right ones at two ranks, or at three with their mutants, the wrong ones at
three. A right one may leave cells undecided that it does not declare; it has no finding. A wrong one has the finding of its
row, and its report names its file."""

import pathlib
import unittest

from suite import FIXTURES, SubjectTest, codes_of, missed_mutants, silence

# Run at three ranks, where mutants are, and which of those are not found: who draws with replacement may draw twice.
MISSED = {"DDPBucketed": set(), "average_gradients": set(), "SyncBatchNorm": set(), "PaddedSampler": set(),
          "WeightedSampler": {"subject_index_twice"}}
RIGHT = {
    "NaiveDataParallel": "ddp",
    "DDPIndividualParameters": "ddp",
    "DDPBucketed": "ddp",
    "FlatBufferDDP": "ddp",
    "average_gradients": "ddp",
    "average_present_gradients": "ddp",
    "register_gradient_hooks": "ddp",
    "AccumulatingDataParallel": "ddp",
    "CarefulDDP": "ddp",
    "NothingSent": "ddp",
    "SyncBatchNorm": "sync_bn",
    "ImageSyncBatchNorm": "sync_bn",
    "PlainSyncBatchNorm": "sync_bn",
    "PaddedSampler": "sampler",
    "LengthGroupedBatchSampler": "sampler",
    "AsManyAsFit": "sampler",
    "WholeBatches": "sampler",
    "EndlessSampler": "sampler",
    "KeptStream": "sampler",
    "ShareOfTheHost": "sampler",
    "WeightedSampler": "sampler",
    "ShareOfSampler": "sampler",
    "BackwardOfItsOwn": "ddp",
}
WORDS = {"Communicates": "ddp", "ddp_that_communicates": "ddp", "GradientsByBroadcast": "ddp", "SummedGradients": "ddp",
         "ReducedInFloat32": "ddp", "AroundBatchNorm": "sync_bn", "WithActivation": "sync_bn", "RowsAmongSeveral": "sync_bn",
         "InOrder": "sampler", "Weighted": "sampler"}
WRONG = {
    "GradientsSummed": ("ddp", {"LS506"}),
    "HookOnTheWrongTensor": ("ddp", {"LS403", "LS407"}),
    "LastBucketNotFlushed": ("ddp", {"LS403", "LS407"}),
    "TiedReducedTwice": ("ddp", {"LS501"}),
    "NothingBroadcast": ("ddp", {"LS406"}),
    "WeightsBroadcast": ("ddp", {"LS406"}),
    "UnusedNeverReduced": ("ddp", {"LS501", "LS403", "LS407"}),
    "OnlyWhereThereIsOne": ("ddp", {"LS201", "LS202", "LS301", "LS403"}),
    "NeverZeroed": ("ddp", {"LS501"}),
    "BucketedTwice": ("ddp", {"LS506"}),
    "OnlyTheLastMicroBatch": ("ddp", {"LS403"}),
    "UnweightedMean": ("sync_bn", {"LS502"}),
    "ActivatedUnweighted": ("sync_bn", {"LS502"}),
    "BiasedRunningVariance": ("sync_bn", {"LS505"}),
    "NoGradientThroughStatistics": ("sync_bn", {"LS501"}),
    "BucketSamplerWithoutShards": ("sampler", {"LS411"}),
    "EpochIgnored": ("sampler", {"LS414"}),
    "ShuffledByNobody": ("sampler", {"LS411"}),
    "StreamOfItsOwn": ("sampler", {"LS411"}),
    "ChunksThatOverlap": ("sampler", {"LS411"}),
    "LastOfEachShareLost": ("sampler", {"LS412"}),
}
# Where a finding stands is the line of the mistake itself.
POINTED_AT = {"WeightsBroadcast", "BucketSamplerWithoutShards", "EpochIgnored", "ShuffledByNobody", "StreamOfItsOwn"}
SAID = {"NeverZeroed": "what step 0 gave is still in them"}


def text_of(site):
    return pathlib.Path(site["file"]).read_text().splitlines()[site["line"] - 1]


class Subjects(SubjectTest):
    def test_right_ones_have_no_finding(self):
        for name, kind in RIGHT.items():
            with self.subTest(name):
                self.setUp()
                file = "right_samplers.py" if kind == "sampler" else "right.py"
                done, report = self.suite(f"{FIXTURES}/{file}:{name}", "--as", kind, "-n", "3" if name in MISSED else "2")
                self.assertEqual((done.returncode, codes_of(report)), (0, set()), done.stdout)
                self.assertEqual(missed_mutants(report), MISSED.get(name, set()), done.stdout)
                self.assertIn("pass", {case["verdict"] for case in report["cases"]})

    def test_words_that_mean_something_else(self):
        for name, kind in WORDS.items():
            with self.subTest(name):
                self.setUp()
                done, report = self.suite(f"{FIXTURES}/right_words.py:{name}", "--as", kind, "-n", "2")
                self.assertEqual((done.returncode, codes_of(report)), (0, set()), done.stdout)
                self.assertIn("pass", {case["verdict"] for case in report["cases"]})

    def test_wrong_ones_are_caught(self):
        for name, (kind, codes) in WRONG.items():
            with self.subTest(name):
                self.setUp()
                done, report = self.suite(f"{FIXTURES}/wrong.py:{name}", "--as", kind, "-n", "3")
                self.assertEqual(done.returncode, 1, done.stdout)
                self.assertTrue(codes_of(report) & codes, codes_of(report))
                self.assertIn("wrong.py:", done.stdout)
                if kind != "sampler":  # The line of the call, not only that of the class.
                    self.assertRegex(" ".join(done.stdout.split()), r"issues \d+ \w+ at \S*(wrong|right)\.py:\d+")
                self.assertIn(SAID.get(name, ""), report["findings"][0]["cause"]["text"])
                if name in POINTED_AT:
                    self.assertIn("MISTAKE", text_of(report["findings"][0]["sites"][0]))

    def test_shares_by_a_rule_of_their_own(self):
        done, report = self.suite(f"{FIXTURES}/right_samplers.py:BucketsFilledUp", "--as", "sampler", "-n", "2")
        self.assertEqual((done.returncode, codes_of(report)), (2, set()), done.stdout)
        done, report = self.suite(f"{FIXTURES}/wrong.py:BucketsInOneOrder", "--as", "sampler", "-n", "2")
        self.assertEqual((done.returncode, codes_of(report)), (1, {"LS414"}), done.stdout)

    def test_pytorch_passes_what_it_declares(self):
        done, report = self.suite("torch", "--as", "sampler")
        self.assertEqual((done.returncode, codes_of(report), missed_mutants(report)), (0, set(), set()), done.stdout)
        self.setUp()
        done, report = self.suite("torch", "--as", "ddp", "--scenario", "buffer-broadcast", "-n", "2")
        self.assertEqual((done.returncode, codes_of(report)), (0, set()), done.stdout)
        self.setUp()
        case = "gradient-equivalence/torch.DistributedDataParallel/w2/float64/hook=fp16_compress,model=linear_int,rule=exact"
        done, report = self.suite("torch", "--as", "ddp", "--case", case)
        self.assertEqual([case["verdict"] for case in report["cases"]], ["pass"], done.stdout)

    def test_a_library_that_is_not_there(self):
        done, _report = self.suite("lightning")
        self.assertEqual(done.returncode, 125, done.stdout + done.stderr)
        self.assertIn("need one that can: --python", done.stderr)

    def test_what_pytorch_does_in_silence(self):
        self.assertEqual([row["name"] for row in silence() if not row["as_told"]], [])


if __name__ == "__main__":
    unittest.main()
