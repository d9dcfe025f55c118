"""Tensors to and from tensor files (safetensors), as harness/history/tensor_file.h has them."""

import json
import os

import torch

TYPES = {
    "float64": ("F64", torch.float64),
    "float32": ("F32", torch.float32),
    "float16": ("F16", torch.float16),
    "bfloat16": ("BF16", torch.bfloat16),
    "int64": ("I64", torch.int64),
    "int32": ("I32", torch.int32),
    "int16": ("I16", torch.int16),
    "int8": ("I8", torch.int8),
    "uint8": ("U8", torch.uint8),
    "bool": ("BOOL", torch.bool),
}
OF_FILE = {name: dtype for name, dtype in TYPES.values()}
TO_FILE = {dtype: name for name, dtype in TYPES.values()}
NAMES = {dtype: name for name, (_, dtype) in TYPES.items()}


def dtype_named(name):
    if name not in TYPES:
        raise ValueError(f"unknown dtype: {name}")
    return TYPES[name][1]


def bytes_of(tensor):
    flat = tensor.contiguous().reshape(-1)
    if flat.numel() == 0:
        return b""
    return flat.view(torch.uint8).numpy().tobytes()


class TensorSet:
    """What is to be written, by name. Values are copied when added, so a later change is not seen."""

    def __init__(self):
        self.tensors = {}

    def add(self, name, tensor):
        self.tensors[name] = tensor.detach().to("cpu").clone(memory_format=torch.contiguous_format)

    def write(self, path):
        header, parts, offset = {}, [], 0
        for name in sorted(self.tensors):
            tensor = self.tensors[name]
            part = bytes_of(tensor)
            header[name] = {"dtype": TO_FILE[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, offset + len(part)]}
            parts.append(part)
            offset += len(part)
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        temporary = f"{path}.tmp-{os.getpid()}"
        with open(temporary, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text + b"".join(parts))
        os.replace(temporary, path)


def read_tensors(path):
    with open(path, "rb") as file:
        data = file.read()
    size = int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        dtype = OF_FILE[entry["dtype"]]
        if begin == end:
            tensors[name] = torch.empty(entry["shape"], dtype=dtype)
            continue
        part = bytearray(data[8 + size + begin : 8 + size + end])
        tensors[name] = torch.frombuffer(part, dtype=torch.uint8).view(dtype).reshape(entry["shape"])
    return tensors
