"""Holds the #include lines against the table in ci/layers.cmake, which the targets' edges are held against too."""

import re

import repository

TABLE = repository.ROOT / "ci" / "layers.cmake"
SOURCES = (".h", ".cc")
# Layers that are files beside others. The writer and what reads Python's frames are compiled with the
# user's torch, into the user's process.
FILES = {
    "history_writer": re.compile(r"harness/history/(format|vocabulary|watch_format|watch_writer|writer\w*)\.h$"),
    "python": re.compile(r"harness/python/\w+\.h$"),
    "mutant_table": re.compile(r"fixtures/mutants/(mutant|table\w*)\.h$"),
}
STANDARD_ONLY = tuple(FILES)
ROOMS = {"run": "run_checks", "watch": "watch_checks"}  # Layers that are called otherwise than their folder in checkers/.
SYSTEM = ("sys/", "linux/", "asm/")
TORCH = re.compile(r"(torch|ATen|c10|gloo)/")
# fmt of the distribution and fmt of the wheel do not mix, so headers that may meet torch must not bring one.
NO_FMT_IN_HEADERS = ("base", "protocol", "history")
# What the implementations offer to a program, which is all that one may see of this project.
LIBRARY = "fixtures/implementations/parallel.h"
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def read_table() -> tuple[dict[str, set[str]], set[str]]:
    layers, torch_layers = {}, set()
    for name, rest in re.findall(r"^set\(LOCKSTEP_(\w+)([^)]*)\)", TABLE.read_text(), re.MULTILINE):
        if name == "TORCH_LAYERS":
            torch_layers = set(rest.split())
        elif name.startswith("LAYER_"):
            layers[name.removeprefix("LAYER_")] = set(rest.split()) - {'""'}
    return layers, torch_layers


def layer_of(path: str) -> str | None:
    """The layer a file belongs to; None outside the layers (tests, user programs)."""
    for layer, pattern in FILES.items():
        if pattern.match(path):
            return layer
    parts = path.split("/")
    if parts[0] in ("checkers", "scenarios"):
        return ROOMS.get(parts[1], parts[1]) if len(parts) > 2 and parts[0] == "checkers" else parts[0]
    if parts[0] == "harness" and len(parts) > 2:
        return parts[1]
    if parts[0] == "fixtures" and len(parts) > 2 and parts[1] not in ("programs", "histories", "subjects"):
        return parts[1]
    return None


def problem_of(path: str, system: bool, included: str, layers: dict, torch_layers: set) -> str | None:
    layer = layer_of(path)
    torch_free_test = path.startswith("tests/unit/")
    if TORCH.match(included) and (torch_free_test or layer and layer not in torch_layers):
        return f"{layer or 'tests/unit'} must not see LibTorch"
    if layer in STANDARD_ONLY and system and "/" in included and not included.startswith(SYSTEM):
        return f"{layer} uses the standard library and the system only"
    if included.startswith("fmt/") and layer in torch_layers:
        return "a target that includes LibTorch must not use fmt: the wheel ships another one"
    if included.startswith("fmt/") and path.endswith(".h") and layer in NO_FMT_IN_HEADERS:
        return f"public headers of {layer} must not include fmt: they meet LibTorch"
    if system:
        return None
    if path.startswith("fixtures/programs/"):
        beside = (repository.ROOT / path).parent / included
        if beside.is_file() or included == LIBRARY:
            return None
        return f"user programs include nothing of ours but the library, {LIBRARY}"
    if not (repository.ROOT / included).is_file():
        return "quoted includes are paths from the root of the repository, and this one does not exist"
    target = layer_of(included)
    if layer is None or target is None or target == layer:
        return "only tests include tests" if layer and included.startswith("tests/") else None
    if target == "history_writer" and (layer == "history" or "history" in layers[layer]):
        return None
    if target not in layers[layer]:
        return f"{layer} must not include {target}: allowed are [{' '.join(sorted(layers[layer]))}]"
    return None


def main() -> None:
    layers, torch_layers = read_table()
    problems = []
    scanned = [p for p in repository.files(*SOURCES) if p.split("/")[0] in
               ("harness", "checkers", "scenarios", "fixtures", "tests")]
    includes = 0
    for path in scanned:
        layer = layer_of(path)
        if layer is not None and layer not in layers:
            problems.append(f"{path}: {layer} is not a layer of ci/layers.cmake")
            continue
        text = (repository.ROOT / path).read_text(encoding="utf-8")
        for number, line in enumerate(text.splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            includes += 1
            problem = problem_of(path, match[1] == "<", match[2], layers, torch_layers)
            if problem:
                problems.append(f"{path}:{number}: {match[2]}: {problem}")
    repository.finish("layers", problems, f"{includes} includes of {len(scanned)} files")


if __name__ == "__main__":
    main()
