"""The controller against every fixed setting, simulated: loads of 1 to 64 streams. Prints tokens a second and ratios.

    python -m bench.controller [--machine gpu-8b|cpu-135m] [--seconds S] [--json]

By simulation (drafting_simulation.py): its step times are measured ones, how many drafts stand is drawn from rates as
they were measured. `--seconds` is simulated time. Every setting meets the same requests. Wanted: at least 0.97 times
the best fixed setting at each point, and more than any one of them in total. With real services: bench_controller.py.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Final

from bench.drafting_simulation import KINDS, MACHINES, Machine, Simulation, TextKind
from gateway.policy.tenants import Tenant

STREAMS: Final = (1, 4, 16, 32, 64)
WARM_SHARE: Final = 0.25  # of the time, before counting begins, for every setting alike
CONTROLLER: Final = "controller"


def settings() -> dict[str, Tenant]:
    fixed = {
        "none": (("none",), 0),
        **{f"ngram K={k}": (("ngram",), k) for k in (4, 8)},
        **{f"draft_model K={k}": (("draft_model",), k) for k in (2, 4, 8)},
        **{f"ngram+draft_model K={k}": (("ngram", "draft_model"), k) for k in (4, 8)},
    }
    tenants = {
        name: Tenant(name="t", anonymous=True, proposers=proposers, num_draft_tokens=k)
        for name, (proposers, k) in fixed.items()
    }
    return tenants | {CONTROLLER: Tenant(name="t", anonymous=True, proposers=("auto",), num_draft_tokens=8)}


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


def measure(machine: Machine, seconds: float, streams: tuple[int, ...] = STREAMS) -> Iterator[Point]:
    loads = {name: [kind] for name, kind in KINDS.items()} | {"mixed": list(KINDS.values())}
    for load, kinds in loads.items():
        for num_streams in streams:
            rates = {name: rate(machine, policy, kinds, num_streams, seconds) for name, policy in settings().items()}
            yield Point(load, num_streams, rates)


def rate(machine: Machine, policy: Tenant, kinds: list[TextKind], num_streams: int, seconds: float) -> float:
    simulation = Simulation(machine, policy, kinds, num_streams)
    simulation.run(WARM_SHARE * seconds)
    simulation.seconds, simulation.tokens = 0.0, 0
    simulation.run(seconds)
    return simulation.tokens_per_second


def totals(points: list[Point]) -> dict[str, float]:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", choices=sorted(MACHINES), default="gpu-8b")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    points = []
    for point in measure(MACHINES[options.machine], options.seconds):
        points.append(point)
        if not options.json:
            show(point)
    if options.json:
        print(json.dumps({"points": [asdict(point) for point in points], "totals": totals(points)}))
        return
    print(f"{options.machine}: simulated; lowest ratio {min(point.ratio for point in points):.3f}")
    for name, share in sorted(totals(points).items(), key=lambda pair: -pair[1]):
        print(f"  {share:.3f} of the best, mean over points: {name}")


if __name__ == "__main__":
    main()
