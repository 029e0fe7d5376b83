"""Which peer to open the next sequence on: what three rules give when several gateways know the load a little late.

    python -m bench.picking [--gateways 1 4 16] [--json]

A simulation without a clock of its own: sequences arrive at random, run for a random time, and every gateway sees its
own at once and others' as each peer last told. Printed is how much fuller the fullest peer is than the mean, averaged
over time: 1.00 is perfect balance. The same seed gives the same figures on any machine.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

REPORT_SECONDS = 2.0  # between two looks of a gateway at a peer that runs none of its sequences (gateway/peers/pool.py)
ARRIVALS = (80.0, 10.0)  # of sequences per second: many on each peer, and few
STEP_SECONDS = 0.02  # between two reports of a peer that does

Rule = Callable[[random.Random, Sequence[float]], int]  # what the peers seem to hold -> which one


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    num_gateways: int
    num_peers: int = 8
    arrivals_per_second: float = 80.0
    mean_seconds: float = 4.0  # of one sequence
    seconds: float = 120.0
    seed: int = 0

    @property
    def sequences_of_each(self) -> float:
        """On a peer, in the mean."""
        return self.arrivals_per_second * self.mean_seconds / self.num_peers


def any_peer(dice: random.Random, loads: Sequence[float]) -> int:
    return dice.randrange(len(loads))


def least_loaded(dice: random.Random, loads: Sequence[float]) -> int:
    return min(range(len(loads)), key=lambda i: (loads[i], dice.random()))


def better_of_two(dice: random.Random, loads: Sequence[float]) -> int:
    return min(dice.sample(range(len(loads)), 2), key=loads.__getitem__)


RULES: dict[str, Rule] = {rule.__name__: rule for rule in (any_peer, least_loaded, better_of_two)}


@dataclass(slots=True)
class View:
    """What one gateway knows of one peer."""

    ours: int = 0
    others: int = 0
    seen_at: float = field(default=float("-inf"))


class Simulation:
    def __init__(self, setting: Setting, rule: Rule) -> None:
        self._setting = setting
        self._rule = rule
        self._dice = random.Random(setting.seed)
        self._held = [0] * setting.num_peers
        self._views = [[View() for _ in self._held] for _ in range(setting.num_gateways)]
        self._ends: list[tuple[float, int, int]] = []  # time, gateway, peer

    def imbalance(self) -> float:
        """Fullest / mean, over time, once the peers have filled."""
        now, warm, weighted, total = 0.0, 3 * self._setting.mean_seconds, 0.0, 0.0
        while now < self._setting.seconds:
            arrival = now + self._dice.expovariate(self._setting.arrivals_per_second)
            self._end_until(arrival)
            if now > warm:
                weighted += (arrival - now) * max(self._held) / (sum(self._held) / len(self._held))
                total += arrival - now
            now = arrival
            self._open(now)
        return weighted / total

    def _open(self, now: float) -> None:
        gateway = self._dice.randrange(len(self._views))
        views = self._views[gateway]
        for held, view in zip(self._held, views, strict=True):
            if now - view.seen_at >= (STEP_SECONDS if view.ours else REPORT_SECONDS):
                view.others, view.seen_at = held - view.ours, now
        peer = self._rule(self._dice, [view.ours + view.others for view in views])
        views[peer].ours += 1
        self._held[peer] += 1
        lasts = self._dice.expovariate(1 / self._setting.mean_seconds)
        heapq.heappush(self._ends, (now + lasts, gateway, peer))

    def _end_until(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            _, gateway, peer = heapq.heappop(self._ends)
            self._views[gateway][peer].ours -= 1
            self._held[peer] -= 1


def measure(num_gateways: int, arrivals_per_second: float) -> dict[str, float]:
    setting = Setting(num_gateways=num_gateways, arrivals_per_second=arrivals_per_second)
    return {name: Simulation(setting, rule).imbalance() for name, rule in RULES.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gateways", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    figures = {rate: {number: measure(number, rate) for number in asked.gateways} for rate in ARRIVALS}
    if asked.json:
        print(json.dumps(figures))
        return
    for rate, by_number in figures.items():
        setting = Setting(num_gateways=1, arrivals_per_second=rate)
        print(f"fullest / mean of {setting.num_peers} peers, {setting.sequences_of_each:g} sequences on each")
        print(f"{'gateways':>8}" + "".join(f"{name:>16}" for name in RULES))
        for number, by_rule in by_number.items():
            print(f"{number:>8}" + "".join(f"{figure:>16.2f}" for figure in by_rule.values()))


if __name__ == "__main__":
    main()
