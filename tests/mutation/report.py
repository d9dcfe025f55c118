"""What became of the mutants: counts by file, operator and scenario, and the names of those that live."""

import collections
import pathlib

KILLED = ("finding", "raised", "crash", "time-out")
EQUIVALENT = pathlib.Path(__file__).with_name("equivalent.txt")

# What a mistake of each kind should look like: written before the runs.
NUMBERS = {"LS401", "LS402", "LS403", "LS406", "LS407", "LS501", "LS502", "LS503", "LS504", "LS505", "LS506", "LS508", "LS509", "LS510"}
CALLS = {"LS201", "LS202", "LS203", "LS204", "LS205", "LS206", "LS207", "LS208", "LS209"}
SAMPLES = {f"LS{number}" for number in range(411, 426)}
ENDS = {"LS101", "LS102", "LS301"}
FITTING = {
    "arithmetic": NUMBERS | SAMPLES | CALLS | ENDS,
    "bound": NUMBERS | SAMPLES | CALLS | ENDS,
    "condition": NUMBERS | SAMPLES | CALLS | ENDS | {"LS507"},
    "constant": NUMBERS | SAMPLES | CALLS | ENDS,
    "deleted statement": NUMBERS | SAMPLES | CALLS | ENDS | {"LS507"},
    "detach": NUMBERS | ENDS,
    "early return": NUMBERS | SAMPLES | CALLS | ENDS | {"LS507"},
    "enumerator": NUMBERS | CALLS | ENDS,
    "logical": NUMBERS | SAMPLES | CALLS | ENDS | {"LS507"},
    "relational": NUMBERS | SAMPLES | CALLS | ENDS | {"LS507"},
    "removed call": NUMBERS | SAMPLES | CALLS | ENDS,
    "swapped arguments": NUMBERS | SAMPLES | CALLS | ENDS,
}


def equivalents():
    """By mutant, why no program can tell it from the original: lines of `IDENTITY | REASON`."""
    if not EQUIVALENT.exists():
        return {}
    rows = [line.split(" | ", 1) for line in EQUIVALENT.read_text().splitlines() if " | " in line]
    return {mutant.strip(): reason.strip() for mutant, reason in rows}


def outcome_of(record, equal):
    if record["outcome"] not in KILLED and record["identity"] in equal:
        return "equivalent"
    return record["outcome"]


def counted(records, key, equal):
    table = collections.defaultdict(collections.Counter)
    for record in records:
        table[key(record)][outcome_of(record, equal)] += 1
    return {name: dict(counts) for name, counts in sorted(table.items())}


def scenario(record):
    return record.get("cell", "").split("/")[0] or "-"


def rate(counts):
    killed = sum(counts.get(kind, 0) for kind in KILLED)
    total = sum(counts.values()) - counts.get("equivalent", 0)
    return 100 * killed / total if total else 100.0


def alone(records):
    """By cell, how many mutants it found in which no other cell that was asked found anything."""
    return collections.Counter(record["found_by"][0] for record in records if len(record.get("found_by", ())) == 1)


def summary(records):
    equal = equivalents()
    counts = collections.Counter(outcome_of(record, equal) for record in records)
    by_itself = alone(records)
    codes = [record for record in records if record.get("codes") and record["operator"] in FITTING]
    fitting = [record for record in codes if record["codes"][0] in FITTING[record["operator"]]]
    return {
        "mutants": len(records),
        "outcomes": dict(counts),
        "killed_percent": round(rate(counts), 1),
        "fitting_codes": [len(fitting), len(codes)],
        "by_file": counted(records, lambda record: record["file"].rsplit("/", 1)[-1], equal),
        "by_operator": counted(records, lambda record: record["operator"], equal),
        "by_scenario": counted([r for r in records if r["outcome"] in KILLED], scenario, equal),
        "found_alone": dict(by_itself.most_common()),
        "found_with_others": sorted({cell for record in records for cell in record.get("found_by", ())} - set(by_itself)),
        "living": [record for record in records if outcome_of(record, equal) in ("survived", "undecided")],
    }


def page(records):
    told = summary(records)
    kinds = [*KILLED, "undecided", "survived", "equivalent"]
    fit, of = told["fitting_codes"]
    lines = [f"{told['mutants']} mutants, {told['killed_percent']} % of those that are not equivalent killed."
             + (f" First code fits: {fit} of {of}." if of else ""), ""]
    for title in ("by_file", "by_operator", "by_scenario"):
        lines += [f"| {title.replace('by_', '')} | {' | '.join(kinds)} | killed |", "|---" * (len(kinds) + 2) + "|"]
        for name, counts in told[title].items():
            cells = " | ".join(str(counts.get(kind, 0)) for kind in kinds)
            lines.append(f"| {name} | {cells} | {rate(counts):.0f} % |")
        lines.append("")
    lines += [f"- {record['outcome']}: {record['name'] or record['mutant']}"
              + (f" ({record['reason']})" if record.get("reason") else "") for record in told["living"]]
    return "\n".join(lines) + "\n"
