"""The controller against every fixed setting, with real services and a recorded load of 1 to 64 streams.

    python -m bench.bench_controller [--draft-model DIR] [--device cuda --widen 8b --kv-memory-mib 8000]
        [--streams 1,4,16,64] [--minutes 12] [--rounds 12] [--json FILE]

Verifier, drafter and gateway start once; each setting is a tenant. In every round each setting replays the same
requests (mixed_load.py) at every number of streams, one setting right after the other, in another order each time, so
that what else the machine does hits all alike. A fixed setting far below the best one at a point is not measured there
again: what time there is goes to those that matter. `--minutes` bounds it all: a round that would not end in time is
not begun. Wanted: at least 0.97 times the best fixed setting at each point, and more than any one of them in total. The
best of several measured ones is partly the luckiest; `+-` is the standard error of the ratio over rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.controller import CONTROLLER, FIXED, MOST_DRAFT_TOKENS, STREAMS, Point, show, totals
from bench.live_services import Drafter, Services, running, tenant
from bench.local_stack import running_on_cores
from bench.mixed_load import Recorded, Replayed, load_recorded, replay, stretch
from bench.scraped import Scraped
from launcher.demo import DRAFTERS, find_draft_model
from slipstream.config import default_model_dir

MODEL_LEN: Final = 1024  # on a GPU; more than any recorded request has
ANSWERS: Final = 1.5  # that each stream takes up at a point; a lone one takes a whole period
FEWEST_ANSWERS: Final = 12  # of several streams together
OUT: Final = 0.85  # of the best fixed setting; one below it is not measured there again
PAUSE_SECONDS: Final = 0.3  # after a replay, until what was cut short is gone everywhere


def tenants() -> list[dict[str, Any]]:
    """Named as their settings are."""
    fixed = [tenant(name, proposers=list(who), num_draft_tokens=count) for name, (who, count) in FIXED.items()]
    return [*fixed, tenant(CONTROLLER, proposers="auto", num_draft_tokens=MOST_DRAFT_TOKENS)]


@dataclass(slots=True)
class Measured:
    """Replays of one number of streams, by setting; one of each in every round, until one is out."""

    streams: int
    replays: dict[str, list[Replayed]] = field(default_factory=dict)

    def add(self, setting: str, replayed: Replayed) -> None:
        self.replays.setdefault(setting, []).append(replayed)

    @property
    def contenders(self) -> list[str]:
        """Settings that are still measured."""
        if not self.replays:
            return [*FIXED, CONTROLLER]
        rates = self.point().rates
        least = OUT * rates[self.point().best_fixed]
        return [name for name, rate in rates.items() if name == CONTROLLER or rate >= least]

    @property
    def seconds_of_a_round(self) -> float:
        return sum(self.replays[name][-1].seconds + PAUSE_SECONDS for name in self.contenders)

    def point(self) -> Point:
        return Point("mixed", self.streams, {name: _rate(of) for name, of in self.replays.items()})

    def spread(self) -> float:
        """Standard error of the controller's ratio to the best fixed setting; 0 if there was one round only."""
        best = self.point().best_fixed
        pairs = zip(self.replays[CONTROLLER], self.replays[best], strict=False)
        ratios = [ours.tokens_per_second / fixed.tokens_per_second for ours, fixed in pairs if fixed.num_tokens]
        return statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else 0.0

    def failures(self) -> dict[str, int]:
        every = Replayed()
        for replayed in (one for of in self.replays.values() for one in of):
            every.add(replayed)
        return dict(every.failures)


def _answers_each(answers: float, streams: int) -> float:
    return answers if streams == 1 else max(answers, FEWEST_ANSWERS / streams)


def _rate(replays: Sequence[Replayed]) -> float:
    whole = Replayed()
    for one in replays:
        whole.add(one)
    return whole.tokens_per_second


class Bench:
    """Replays against one gateway, on one event loop: grpc.aio wants it so."""

    def __init__(self, gateway: str, recorded: Sequence[Recorded], streams: Sequence[int], answers: float) -> None:
        self._gateway = gateway
        self._loads = {number: stretch(recorded, number, _answers_each(answers, number)) for number in streams}
        self.measured = {number: Measured(number) for number in streams}

    async def warm_up(self) -> None:
        """The setting that has most to warm, and the controller at every load: what it learns first is not measured."""
        await self._replay([*FIXED][-1], min(self._loads))
        for streams in self._loads:
            await self._replay(CONTROLLER, streams)

    async def round(self, number: int) -> None:
        """Another setting goes first in every round, and every other round goes backwards."""
        for streams, measured in self.measured.items():
            names = measured.contenders[:: -1 if number % 2 else 1]
            first = number // 2 % len(names)
            for name in (*names[first:], *names[:first]):
                measured.add(name, await self._replay(name, streams))

    @property
    def seconds_of_a_round(self) -> float:
        """Of those settings that are still measured, as they took last."""
        return sum(measured.seconds_of_a_round for measured in self.measured.values())

    def points(self) -> list[Point]:
        return [measured.point() for measured in self.measured.values()]

    def as_dict(self) -> dict[str, Any]:
        points = [
            asdict(measured.point()) | {"standard_error": measured.spread(), "failures": measured.failures()}
            for measured in self.measured.values()
        ]
        return {"points": points, "totals": totals(self.points())}

    async def _replay(self, name: str, streams: int) -> Replayed:
        replayed = await replay(self._gateway, name, self._loads[streams], streams)
        await asyncio.sleep(PAUSE_SECONDS)
        return replayed


async def measured_rounds(bench: Bench, rounds: int, end: float) -> AsyncIterator[int]:
    """How many are done, after each: at least one, no more than end before `end`, which is by time.monotonic()."""
    await bench.warm_up()
    for number in range(rounds):
        if number and time.monotonic() + bench.seconds_of_a_round > end:
            return
        await bench.round(number)
        yield number + 1


@contextmanager
def services(asked: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """The gateway's address, and that of its metrics. On a CPU as `slipstream up` runs them."""
    if asked.device != "cpu":
        drafter = Drafter(
            model=asked.draft_model,
            proposer="draft_model",
            device=asked.drafter_device or asked.device,
            kv_memory_mib=2000,
        )
        room = Services(
            model=asked.model, device=asked.device, widen=asked.widen, max_model_len=MODEL_LEN,
            kv_memory_mib=asked.kv_memory_mib, drafters=(drafter,),
        )  # fmt: skip
        with running(room, tenants()) as live:
            yield live.gateway.address, live.gateway.metrics_address
        return
    with running_on_cores(asked.model, asked.draft_model, tenants(), asked.threads) as stack:
        yield stack.gateway, stack.services[-1].spec.metrics


def tell(bench: Bench, rounds: int, seconds: float) -> None:
    print(f"after {rounds} rounds, {seconds:.0f} s")
    for measured in bench.measured.values():
        show(measured.point())
        rates = ", ".join(
            f"{name} {rate:.1f} ({len(measured.replays[name])})" for name, rate in measured.point().rates.items()
        )
        print(f"     +- {measured.spread():.3f}; {rates}")
        for text, count in measured.failures().items():
            print(f"     {count} requests failed: {text}")
    for name, share in sorted(totals(bench.points()).items(), key=lambda pair: -pair[1]):
        print(f"  {share:.3f} of the best, mean over points: {name}", flush=True)


def decisions(metrics: str) -> str:
    """The controller's at the end, as `slipstream status --policy` tells them."""
    counted = Scraped.of(metrics)
    ours = {"tenant": CONTROLLER}
    ways = counted.by("way", "slipstream_policy_draft_tokens", **ours)
    reasons = counted.by("reason", "slipstream_policy_changes_total", **ours)
    return f"ways at the end, with K: {ways}; changes by reason: {reasons}"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=default_model_dir() / "smollm2-135m-instruct")
    parser.add_argument("--draft-model", type=Path, default=find_draft_model(DRAFTERS))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--drafter-device", default="", help="by default the verifier's")
    parser.add_argument("--widen", default="")
    parser.add_argument("--kv-memory-mib", type=int, default=8000, help="of a verifier on a GPU")
    parser.add_argument("--threads", type=int, default=0, help="of a verifier on a CPU; by default all cores")
    parser.add_argument("--streams", default=",".join(map(str, STREAMS)))
    parser.add_argument("--answers", type=float, default=ANSWERS, help="that each stream takes up at a point")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--minutes", type=float, default=12.0, help="for all, the start included")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


async def run(asked: argparse.Namespace, gateway: str, metrics: str, began: float) -> None:
    streams = [int(number) for number in asked.streams.split(",")]
    bench = Bench(gateway, load_recorded(), streams, asked.answers)
    async for rounds in measured_rounds(bench, asked.rounds, began + 60 * asked.minutes):
        tell(bench, rounds, time.monotonic() - began)
        if asked.json:  # after each one: a run may be cut short
            asked.json.write_text(json.dumps({"rounds": rounds, **bench.as_dict()}))
    print(decisions(metrics))


def main() -> None:
    began, asked = time.monotonic(), parse()
    with services(asked) as (gateway, metrics):
        asyncio.run(run(asked, gateway, metrics, began))


if __name__ == "__main__":
    main()
