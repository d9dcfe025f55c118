"""`export --to perfetto`, read with the classes of the public package perfetto."""

import collections
import pathlib
import subprocess
import sys
import unittest

from program import ProgramTest

try:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent
except ImportError:
    Trace = None

HISTORIES = pathlib.Path(__file__).resolve().parents[2] / "fixtures" / "histories"


class PerfettoTest(ProgramTest):
    def trace_of(self, name: str) -> "Trace":
        subprocess.run(["tar", "xJf", str(HISTORIES / f"{name}.tar.xz")], cwd=self.directory, check=True)
        done = self.lockstep("export", ".", "--to", "perfetto", "--out", "trace")
        self.assertEqual((done.status, done.out), (0, "trace\n"), done.err)
        trace = Trace()
        trace.ParseFromString((self.directory / "trace").read_bytes())
        return trace

    def test_tracks_slices_and_arrows(self) -> None:
        trace = self.trace_of("hang-two-groups")
        tracks = {p.track_descriptor.uuid: p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")}
        ranks = {uuid: track.name for uuid, track in tracks.items() if track.name.startswith("rank")}
        self.assertEqual(sorted(ranks.values()), ["rank 0", "rank 1", "rank 2"])
        flows, depth = collections.defaultdict(set), collections.Counter()
        last = 0
        for packet in trace.packet:
            if not packet.HasField("track_event"):
                continue
            event = packet.track_event
            self.assertGreaterEqual(packet.timestamp, last)
            last = packet.timestamp
            if event.type == TrackEvent.TYPE_SLICE_BEGIN:
                depth[event.track_uuid] += 1
                self.assertRegex(event.name, r"^(all_reduce|broadcast|barrier) ")
                group = tracks[event.track_uuid]
                self.assertTrue(group.name.startswith("group "))
                for flow in event.flow_ids:
                    flows[flow].add((event.name, ranks[group.parent_uuid]))
            elif event.type == TrackEvent.TYPE_SLICE_END:
                depth[event.track_uuid] -= 1
            self.assertLessEqual(depth[event.track_uuid], 1)  # Slices of a track do not overlap.
        together = [calls for calls in flows.values() if len(calls) == 3]
        self.assertGreater(len(together), 3)
        for calls in flows.values():
            self.assertEqual(len({name for name, _ in calls}), 1)
        self.assertEqual(sum(depth.values()), 3)  # What nobody got out of.

    def test_the_finding_stands_where_it_happened(self) -> None:
        trace = self.trace_of("hang-two-groups")
        tracks = {p.track_descriptor.uuid: p.track_descriptor.name for p in trace.packet
                  if p.HasField("track_descriptor")}
        instants = [(tracks[p.track_event.track_uuid], p.track_event.name) for p in trace.packet
                    if p.track_event.type == TrackEvent.TYPE_INSTANT]
        self.assertEqual([track for track, _ in instants], ["findings", "rank 1"])
        self.assertTrue(all(name.startswith("LS302: ") for _, name in instants), instants)

    def test_a_run_without_calls_is_refused(self) -> None:
        self.lockstep("run", "-n", "2", "--run-dir", "run", "--", "true")
        done = self.lockstep("export", "run", "--to", "perfetto")
        self.assert_refused(done, "there is nothing to draw")


if __name__ == "__main__":
    if Trace is None:
        print("skipped: the Python package perfetto is not installed here")
        sys.exit(77)
    unittest.main()
