"""What each job of the storm is, drawn from its seed and number alone: its processes, its victim, and when it is hit."""

import dataclasses
import random
import signal

WITHOUT_TORCH, WITH_TORCH, ALL_KILLED = 270, 30, 30  # All of lockstep is killed in the last of them.
JOBS = WITHOUT_TORCH + WITH_TORCH + ALL_KILLED
PROCESSES_MAX = 8

WAYS_TO_GET_AWAY = ("double", "setsid", "ignore_term", "renamed", "zombie", "port")
BECOME = ("", "", "sleep", "sh", "no_environment", "relay")
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP, signal.SIGSEGV)
ROLES = ("rank", "rank", "child", "child", "launcher", "guard", "supervisor")


@dataclasses.dataclass(frozen=True)
class Plan:
    seed: int
    number: int
    torch: bool
    ranks: tuple
    launcher: str  # "": lockstep starts the ranks
    place: str  # "root", "user": as one without rights; "pid1": lockstep is pid 1 of a namespace
    victim: str
    signal: signal.Signals
    instant_s: float
    then: str  # of one that is stopped: "continue" it, or "interrupt" the job

    def __str__(self) -> str:
        how = f"{self.launcher or 'lockstep'} starts {len(self.ranks)} rank{'s'[:len(self.ranks) != 1]}"
        return (f"{'torch' if self.torch else 'tree'}, {how}, {self.place}; {self.signal.name} to {self.victim} "
                f"at {self.instant_s:.2f} s" + (f", then {self.then}" if self.signal == signal.SIGSTOP else ""))


def child(draw: random.Random, life: float, depth: int, left: list) -> dict:
    left[0] -= 1
    become = draw.choice(BECOME)
    flags = [flag for flag in WAYS_TO_GET_AWAY if draw.random() < 0.3]
    if draw.random() < 0.5:  # Else it is gone before its rank is, as it should be.
        life = draw.choice((life + 0.5, 300.0))
    else:
        life = life * draw.random()
    children = [child(draw, life, depth + 1, left)] if depth < 2 and left[0] > 0 and draw.random() < 0.4 else []
    return {"life": round(life, 2), "flags": flags, "become": become, "children": children}


def plan_of(seed: int, number: int) -> Plan:
    draw = random.Random(f"{seed}/{number}")
    torch = WITHOUT_TORCH <= number < WITHOUT_TORCH + WITH_TORCH
    life = draw.uniform(0.3, 2.5)
    count = draw.randint(2, 4) if torch else draw.randint(1, 4)
    left = [0 if torch else draw.randint(max(0, 2 - count), PROCESSES_MAX - count)]
    ranks = []
    for _ in range(count):
        children = [child(draw, life, 0, left) for _ in range(draw.randint(0, 2)) if left[0] > 0]
        ranks.append({"life": round(life, 2), "flags": [], "become": "", "children": children})
    if left[0] > 0 and not ranks[0]["children"]:
        ranks[0]["children"].append(child(draw, life, 0, left))
    launcher = draw.choice(("torchrun", "") if torch else ("", "", "python", "sh"))
    roles = [role for role in ROLES if role != "launcher" or launcher]
    return Plan(
        seed=seed, number=number, torch=torch, ranks=tuple(ranks), launcher=launcher,
        place=draw.choice(("root", "pid1") if torch else ("root", "root", "user", "user", "pid1")),
        victim="all" if number >= WITHOUT_TORCH + WITH_TORCH else draw.choice(roles),
        signal=signal.SIGKILL if number >= WITHOUT_TORCH + WITH_TORCH else draw.choice(SIGNALS),
        instant_s=round(draw.uniform(0.2, 12.0) if torch else draw.uniform(0.0, life + 0.6), 2),
        then=draw.choice(("continue", "interrupt")))
