"""Mutated sources compiled into a rank host: the build's own commands, with other sources and without warnings."""

import concurrent.futures
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess

from source import Source

TESTS = "tests/mutation"


class Builder:
    """Builds in `folder` what `build` (a finished build folder of the project at `root`) holds unmutated."""

    def __init__(self, root, build, folder, jobs, say):
        self.root, self.build, self.folder, self.jobs, self.say = root, build, folder, jobs, say
        commands = json.loads((build / "compile_commands.json").read_text())
        self.commands = {os.path.relpath(entry["file"], root): entry["command"] for entry in commands}

    def command(self, file, text_path, output):
        words = shlex.split(self.commands[file])
        at = words.index("-o")
        words = words[:at] + words[at + 2 :]
        words = [word for word in words if not word.startswith(("-W", "-g")) and word != "-O2"]
        words[words.index(str(self.root / file))] = str(text_path)
        syntax = ["-fsyntax-only"] if output is None else ["-O1", "-o", str(output)]
        return words + syntax + ["-w", "-fmax-errors=0", "-include", str(self.root / TESTS / "mutation.h")]

    def run(self, words):
        done = subprocess.run(words, cwd=self.build, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    def write(self, file, mutants):
        path = self.folder / "sources" / file.replace("/", "+")
        path.parent.mkdir(parents=True, exist_ok=True)
        text = Source(self.root, file).with_mutants(mutants)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
        return path

    def compiles(self, file, mutants):
        return self.run(self.command(file, self.write(file, mutants), None))[0] == 0

    def compiling(self, file, mutants):
        """Those of the mutants of a file that compile; known from the last time, where it asked the same."""
        known = self.write(file, mutants).with_suffix(".fit")
        asked = hashlib.sha256(Source(self.root, file).with_mutants(mutants).encode()).hexdigest()
        told = json.loads(known.read_text()) if known.exists() else {}
        if told.get("asked") != asked:
            told = {"asked": asked, "fit": [mutant.number for mutant in self.sifted(file, mutants)]}
            known.write_text(json.dumps(told))
        return [mutant for mutant in mutants if mutant.number in told["fit"]]

    def sifted(self, file, mutants):
        left = list(mutants)
        while left:
            path = self.write(file, left)
            status, errors = self.run(self.command(file, path, None))
            if status == 0:
                return left
            bad = {int(line) - 1 for line in re.findall(r'^(?:In file included from )?mutant:(\d+)', errors, re.M)}
            bad |= {int(line) - 1 for line in re.findall(r'^\s+from mutant:(\d+)', errors, re.M)}
            kept = [mutant for mutant in left if mutant.number not in bad]
            # A mutant of another type may spoil only what stands around it, and no error is on its own line.
            left = kept if len(kept) < len(left) else self.halved(file, left)
        return left

    def halved(self, file, mutants):
        """Those that compile of mutants that together do not."""
        if len(mutants) < 2:
            return []
        middle = len(mutants) // 2
        halves = [mutants[:middle], mutants[middle:]]
        kept = [mutant for half in halves for mutant in (half if self.compiles(file, half) else self.halved(file, half))]
        return kept if len(kept) < len(mutants) else mutants[:middle]

    def object_of(self, file, mutants):
        path = self.write(file, mutants)
        output = self.folder / "objects" / (file.replace("/", "+") + ".o")
        output.parent.mkdir(parents=True, exist_ok=True)
        newest = max(each.stat().st_mtime for each in [path, *(self.root / "fixtures/implementations").glob("*.h")])
        if output.exists() and output.stat().st_mtime > newest:
            return output
        status, errors = self.run(self.command(file, path, output))
        if status:
            raise SystemExit(f"{file}: {errors[:3000]}")
        return output

    def sift(self, by_file):
        """By file, the mutants that compile."""
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            done = pool.map(lambda item: (item[0], self.compiling(*item)), by_file.items())
            result = {}
            for number, (file, mutants) in enumerate(done):
                self.say(f"{number + 1} of {len(by_file)} files: {len(mutants)} of {len(by_file[file])} of {file} compile")
                result[file] = mutants
            return result

    def link(self, by_file, mutated):
        """The folder of programs in which those named are mutated, with those beside them that they need."""
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            objects = list(pool.map(lambda item: str(self.object_of(*item)), by_file.items()))
        runtime = self.folder / "objects" / "mutation.o"
        # Compiled as any file of the project is; the mutants of none are in it.
        likely = next(iter(by_file))
        status, errors = self.run(self.command(likely, self.root / TESTS / "mutation.cc", runtime))
        if status:
            raise SystemExit(errors)
        programs = self.folder / "bin"
        programs.mkdir(exist_ok=True)
        for program in mutated:
            self.link_one(program, [*objects, str(runtime)], programs / program)
        for name in {"lockstep", "lockstep_rank_host", "lockstep_reference_host"} - set(mutated):
            shutil.copy2(self.build / "bin" / name, programs / name)
        return programs

    def link_one(self, program, objects, output):
        others = {"mutate"} | {each.parent.name for each in self.build.glob("*/build.ninja")}  # Of mutants, or of another preset.
        places = [path.relative_to(self.build) for path in self.build.rglob(program) if path.is_file()]
        target = str(next(place for place in places if place.parts[0] not in others))
        told = subprocess.run(["ninja", "-t", "commands", target], cwd=self.build, check=True, capture_output=True,
                              text=True).stdout.strip().splitlines()[-1]
        # Before the archives: what an object defines is not taken from them. A second command would list the tests.
        line = re.sub(f"-o {re.escape(target)}", f"{' '.join(objects)} -o {output}", told, count=1)
        line = re.split(r" && (?=cd |/usr/bin/cmake|:$)", line)[0]
        subprocess.run(line, shell=True, cwd=self.build, check=True)
