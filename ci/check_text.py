"""Rules for every text file, and for what README.md and docs/ say exists."""

import posixpath
import re

import repository

LINES_MAX = 450
# Data and texts that are not ours to shape.
EXEMPT = re.compile(r"^(LICENSE|tests/golden/|fixtures/histories/|fixtures/dumps/.*\.tar\.xz|tests/fuzz/corpus/)")
BINARY = (".lsh", ".safetensors", ".png", ".pt", ".npy", ".gz")
TRAILING_BLANKS_ALLOWED = (".md", ".diff", ".txt")
# Written in pieces, so that this file does not find itself.
MARKS = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX"]) + r")\b")
# Home directories, and top-level folders that only some machine has.
MACHINE_PATH = re.compile(r"(?<![\w.}$/])/(root|work|home/\w+|Users/\w+)/\w")
# Whose links, paths and commands must exist.
PAGES = re.compile(r"^(README|CONTRIBUTING|CHANGELOG|docs/.*|checkers/README)\.md$")


def text_problems(path: str) -> list[str]:
    raw = (repository.ROOT / path).read_bytes()
    if b"\0" in raw:
        return [f"{path}: a binary file that is not on the list in ci/check_text.py"]
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        return [f"{path}: not UTF-8: {error}"]
    problems = []
    lines = text.splitlines()
    if len(lines) > LINES_MAX:
        problems.append(f"{path}: {len(lines)} lines, at most {LINES_MAX}: split it by what it is for")
    if text and not text.endswith("\n"):
        problems.append(f"{path}:{len(lines)}: no newline at the end")
    for number, line in enumerate(lines, 1):
        if MARKS.search(line):
            problems.append(f"{path}:{number}: a reminder; do it, or open an issue")
        if MACHINE_PATH.search(line):
            problems.append(f"{path}:{number}: a path of one machine")
        if line != line.rstrip() and not path.endswith(TRAILING_BLANKS_ALLOWED):
            problems.append(f"{path}:{number}: blanks at the end")
        if line.startswith(("<<<<<<< ", ">>>>>>> ")):
            problems.append(f"{path}:{number}: a merge conflict")
    return problems


def exists(page: str, name: str, known: set[str], folders: set[str]) -> bool:
    """A path from the root, or from where the page lies."""
    for start in ("", page.rpartition("/")[0]):
        path = posixpath.normpath(posixpath.join(start, name.rstrip("/.,")))
        if path in known or path in folders:
            return True
    return False


def heading_names(page: str) -> set[str]:
    lines = (repository.ROOT / page).read_text(encoding="utf-8").splitlines()
    return {
        re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower()).replace(" ", "-")
        for line in lines if line.startswith("#")
    }


def page_problems(page: str, known: set[str]) -> list[str]:
    """Local links, paths in backquotes, headings linked to, and subcommands of ci/dev must exist."""
    folders = {"/".join(p.split("/")[:n]) for p in known for n in range(1, p.count("/") + 1)}
    tops = {folder.split("/")[0] for folder in folders}
    dev = "".join((repository.ROOT / "ci" / name).read_text(encoding="utf-8") for name in ("dev", "setup.sh"))
    commands = set(re.findall(r"^command_([\w-]+)\(\)", dev, re.MULTILINE))
    problems = []
    for number, line in enumerate((repository.ROOT / page).read_text(encoding="utf-8").splitlines(), 1):
        for link in re.findall(r"\]\(([^)\s]+)\)", line):
            target, _, anchor = link.partition("#")
            if re.match(r"\w+:", link):
                continue
            if target and not exists(page, target, known, folders):
                problems.append(f"{page}:{number}: {target} does not exist")
                continue
            goal = posixpath.normpath(posixpath.join(page.rpartition("/")[0], target)) if target else page
            if anchor and anchor not in heading_names(goal):
                problems.append(f"{page}:{number}: there is no heading #{anchor}")
        for token in re.findall(r"`([^`\s]+)`", line):
            if token.split("/")[0] in tops and "/" in token and not set(token) & set("*<>{}|…:"):
                if not exists(page, token, known, folders):
                    problems.append(f"{page}:{number}: {token} does not exist")
        for name in re.findall(r"\bci/dev +([a-z-]+)", line):
            if name not in commands:
                problems.append(f"{page}:{number}: ci/dev has no command {name}")
    return problems


def checker_table_problems(known: set[str]) -> list[str]:
    """checkers/README.md has a row for each code of harness/verdict/codes.h, in their order, and no other."""
    page, source = "checkers/README.md", "harness/verdict/codes.h"
    if page not in known:
        return [f"{page} does not exist"]
    codes = re.findall(r'"(LS\d{3})"', "\n".join(
        line for line in (repository.ROOT / source).read_text(encoding="utf-8").splitlines() if "CodeRow{Code::" in line))
    rows = re.findall(r"^\| \[(LS\d{3})\]", (repository.ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    return [] if rows == codes else [f"{page}: rows of {sorted(set(rows) ^ set(codes)) or 'codes in another order'}"]


def main() -> None:
    known = repository.files()
    checked = [p for p in known if not EXEMPT.match(p) and not p.endswith(BINARY)]
    problems = [problem for path in checked for problem in text_problems(path)]
    pages = [path for path in known if PAGES.match(path)]
    problems += [problem for page in pages for problem in page_problems(page, set(known))]
    problems += checker_table_problems(set(known))
    repository.finish("text", problems, f"{len(checked)} files")


if __name__ == "__main__":
    main()
