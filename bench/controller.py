"""The controller against every fixed setting, simulated: loads of 1 to 64 streams. Prints tokens a second and ratios.

    python -m bench.controller [--machine gpu-8b|cpu-own|cpu-shared] [--kinds mixed|chat|copying|hot] [--seeds 3]
        [--streams 1,4,16,64] [--rounds 5] [--answers 2]

By simulation (drafting_simulation.py): its step times are measured ones, how many drafts stand is drawn from rates as
they were measured. In everything else it is bench_controller: the same settings, each a tenant of one gateway, replay
the same requests in turns, at every number of streams in every round, and the first round does not count. Wanted: at
least 0.97 times the best fixed setting at each point, and more than any one of them in total. `+-` is the standard
error of the ratio over seeds.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from bench.controller_machines import KINDS, MACHINES, MIXED, Machine, TextKind
from bench.drafting_simulation import Clock, Simulation, simulated_controllers
from gateway.control.controllers import Controllers
from gateway.policy.tenants import Tenant

STREAMS: Final = (1, 4, 16, 64)
CONTROLLER: Final = "controller"
FIXED: Final = {
    "none": (("none",), 0),
    "ngram K=4": (("ngram",), 4),
    "draft_model K=2": (("draft_model",), 2),
    "draft_model K=4": (("draft_model",), 4),
    "ngram+draft_model K=4": (("ngram", "draft_model"), 4),
}
MOST_DRAFT_TOKENS: Final = 8  # that the controller may choose
TOKENS: Final = 55  # of an answer, as in the recorded load
PAUSE_SECONDS: Final = 0.3  # between two replays


def settings() -> list[Tenant]:
    """Each a tenant of the setting's name."""
    fixed = {
        name: Tenant(name=name, anonymous=True, proposers=who, num_draft_tokens=k) for name, (who, k) in FIXED.items()
    }
    ours = Tenant(name=CONTROLLER, anonymous=True, proposers=("auto",), num_draft_tokens=MOST_DRAFT_TOKENS)
    return [
        replace(tenant, anonymous=False, key_sha256=(f"{index:064x}",))
        for index, tenant in enumerate([*fixed.values(), ours])
    ]


@dataclass(frozen=True, slots=True)
class Point:
    """One load, and tokens a second under each setting."""

    load: str
    streams: int
    rates: dict[str, float]

    @property
    def best_fixed(self) -> str:
        return max((name for name in self.rates if name != CONTROLLER), key=lambda name: self.rates[name])

    @property
    def ratio(self) -> float:
        return self.rates[CONTROLLER] / self.rates[self.best_fixed]


@dataclass(slots=True)
class Rounds:
    """One run of the whole bench: what each setting made final at each number of streams, and in what time."""

    machine: Machine
    kinds: Sequence[TextKind]
    streams: Sequence[int]
    answers: float
    seed: int
    num_replays: int = 0

    def run(self, rounds: int) -> list[Point]:
        tenants, clock = settings(), Clock()
        controllers = simulated_controllers(tenants, clock)
        total = {(number, tenant.name): [0.0, 0.0] for number in self.streams for tenant in tenants}
        for turn in range(rounds + 1):
            for number in self.streams:
                first = turn % len(tenants)
                for tenant in (*tenants[first:], *tenants[:first]):
                    replayed = self._replay(tenant, number, controllers, clock)
                    if turn:
                        counted = total[number, tenant.name]
                        counted[0] += replayed.tokens
                        counted[1] += replayed.seconds
        return [
            Point("", number, {t.name: total[number, t.name][0] / total[number, t.name][1] for t in tenants})
            for number in self.streams
        ]

    def _replay(self, tenant: Tenant, streams: int, controllers: Controllers, clock: Clock) -> Simulation:
        self.num_replays += 1
        one = Simulation(
            self.machine, tenant, self.kinds, streams,
            tokens_per_request=TOKENS, seed=1000 * self.seed + self.num_replays, clock=clock, shared=controllers,
        )  # fmt: skip
        one.replay(max(12, round(streams * self.answers)))
        clock.now += PAUSE_SECONDS
        return one


def totals(points: Sequence[Point]) -> dict[str, float]:
    """Each setting's mean share of the best at each point, so that large loads do not drown small ones."""
    return {
        name: sum(point.rates[name] / max(point.rates.values()) for point in points) / len(points)
        for name in points[0].rates
    }


def show(point: Point) -> None:
    controlled, best = point.rates[CONTROLLER], point.rates[point.best_fixed]
    print(
        f"{point.load:8} {point.streams:3} streams: controller {controlled:8.1f} tok/s, "
        f"best fixed {best:8.1f} ({point.best_fixed}), ratio {point.ratio:.3f}",
        flush=True,
    )


def mean_point(load: str, points: Sequence[Point]) -> Point:
    """Of several seeds."""
    names = points[0].rates
    return Point(load, points[0].streams, {n: statistics.mean(p.rates[n] for p in points) for n in names})


def spread(mean: Point, points: Sequence[Point]) -> float:
    ratios = [point.rates[CONTROLLER] / point.rates[mean.best_fixed] for point in points]
    return statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", choices=sorted(MACHINES), default="gpu-8b")
    parser.add_argument("--kinds", choices=["mixed", *KINDS], default="mixed")
    parser.add_argument("--streams", default=",".join(map(str, STREAMS)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--answers", type=float, default=2.0, help="that each stream takes up at a point")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    streams = [int(number) for number in options.streams.split(",")]
    kinds = MIXED if options.kinds == "mixed" else [KINDS[options.kinds]]
    machine = MACHINES[options.machine]
    runs = [Rounds(machine, kinds, streams, options.answers, seed).run(options.rounds) for seed in range(options.seeds)]
    points = []
    for found in zip(*runs, strict=True):
        points.append(mean_point(options.kinds, found))
        show(points[-1])
        rates = ", ".join(f"{name} {rate:.1f}" for name, rate in points[-1].rates.items())
        print(f"     +- {spread(points[-1], found):.3f}; {rates}", flush=True)
    for name, share in sorted(totals(points).items(), key=lambda pair: -pair[1]):
        print(f"  {share:.3f} of the best, mean over points: {name}")


if __name__ == "__main__":
    main()
