"""The models of the Python hosts are those of the C++ ones: output for output and gradient for gradient in float64.

Method: both reference hosts are asked for the same model from the same seed and the same rows; what they write is compared."""

import json
import os
import pathlib
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

PYTHON = os.environ.get("LOCKSTEP_PYTHON", sys.executable)
PROGRAM = pathlib.Path(os.environ["LOCKSTEP_PROGRAM"])
PYTHON_HOST = [PYTHON, str(PROGRAM.parent.parent / "share/lockstep/harness/subject/main.py"), "--conversation", "FD", "torch", ""]
CPP_HOST = [str(PROGRAM.parent / "lockstep_reference_host"), "--conversation", "FD"]
FORMATS = {"F64": "d", "F32": "f", "I64": "q"}


def write(path, tensors):
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        part = struct.pack(f"<{len(values)}d", *values)
        header[name] = {"dtype": "F64", "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def read(path):
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__" and entry["dtype"] in FORMATS:
            begin, end = entry["data_offsets"]
            code = FORMATS[entry["dtype"]]
            count = (end - begin) // struct.calcsize(code)
            tensors[name] = entry["shape"], struct.unpack(f"<{count}{code}", data[8 + size + begin : 8 + size + end])
    return tensors


class Host:
    def __init__(self, command):
        ours, theirs = socket.socketpair()
        words = [str(theirs.fileno()) if word == "FD" else word for word in command]
        self.process = subprocess.Popen(
            words, pass_fds=[theirs.fileno()], env={**os.environ, "LOCKSTEP_ROLE": "reference", "OPENBLAS_NUM_THREADS": "1"}
        )
        theirs.close()
        self.lines, self.last = ours.makefile("rwb"), 0

    def ask(self, message, **fields):
        self.last += 1
        self.lines.write(json.dumps({"id": self.last, "message": message, **fields}).encode() + b"\n")
        self.lines.flush()
        answer = json.loads(self.lines.readline())
        if answer["outcome"] != "ok":
            raise AssertionError(f"{message}: {answer}")
        return answer

    def end(self):
        self.ask("bye")
        self.lines.close()
        self.process.wait(timeout=60)


def numel(shape):
    n = 1
    for extent in shape:
        n *= extent
    return n


class Models(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="lockstep-models-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.hosts = {"python": Host(PYTHON_HOST), "c++": Host(CPP_HOST)}
        for host in self.hosts.values():
            self.addCleanup(host.process.kill)
            host.ask("init", rank=0, world=1, backend="gloo", device="cpu", dtype="float64", seed=7, timeout_s=0, rendezvous="")

    def answers(self, model):
        described = {}
        for name, host in self.hosts.items():
            described[name] = host.ask("model", name=model, file=None)
        by_name = {
            host: sorted(({**p} for p in answer["parameters"] + answer["buffers"]), key=lambda p: p["name"])
            for host, answer in described.items()
        }
        self.assertEqual(by_name["python"], by_name["c++"], model)
        return described["c++"]

    def test_equal(self):
        models = [host.ask("hello", protocol=1)["models"] for host in self.hosts.values()]
        self.assertEqual(sorted(models[0]), sorted(models[1]))
        for model in sorted(models[0]):
            with self.subTest(model):
                self.compare(model, self.answers(model))

    def compare(self, model, described):
        rows, x, y = 5, described["x"], described["y"]
        values = [((i * 7919) % 101 - 50) / 37 for i in range(rows * max(numel(x), numel(y)))]
        batch = self.folder / "batch"
        write(batch, {"x": ([rows, *x], values[: rows * numel(x)]), "y": ([rows, *y], values[-rows * numel(y) :]),
                      "points": ([rows, *x], values[: rows * numel(x)])})
        forwards = [{"parts": [{"batch": str(batch), "rank": 0, "rows": order, "weights": [0.2]}], "buffers": None}
                    for order in (None, [4, 0, 2])]
        extra = {"penalty": {"kind": "wgan_gp", "weight": 10.0}} if model.startswith("critic") else {}
        written = {}
        for name, host in self.hosts.items():
            out = self.folder / f"{name}.out"
            host.ask("reference", out=str(out), dtype="float64", widen=True, train=True, grad=True, forwards=forwards, **extra)
            written[name] = read(out)
        self.assertEqual(sorted(written["python"]), sorted(written["c++"]), model)
        self.assertIn("loss", written["c++"])
        for name, (shape, values) in written["c++"].items():
            self.assertEqual(written["python"][name][0], shape, (model, name))
            for ours, theirs in zip(written["python"][name][1], values):
                self.assertAlmostEqual(ours, theirs, delta=1e-12 * max(1, abs(theirs)), msg=f"{model} {name}")


if __name__ == "__main__":
    unittest.main()
