"""Serving, measured at its clients, for each way of drafting beside plain decoding of the same run.

    python -m bench.bench_serving [--device cuda --drafter-device cuda:1 --widen 8b] [--placement one_process]
        [--draft-model DIR | --round-bits 4] [--streams 1,8,32,64] [--temperatures 0,1] [--seconds 5] [--minutes M]
        [--json FILE] [--plot FILE]

Gateway, verifier and drafters run as processes, the last two as one if asked; prompts are those of bench/prompts.
Every point takes `--seconds`, whatever is measured in it: proposers x enumeration on and off x modes (where T > 0) x
streams. What is worth most comes first, and `--minutes` ends it, start included. After each one a line: tokens a second
and how many times plain, times, acceptance, hits, and where a pass's time went. `--round-bits 4` drafts with the target
itself, rounded. `bench.simulate --against FILE` predicts the same figures. `--plot` needs matplotlib
(`pip install slipstream[eval]`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import platform
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from bench.clients import Felt, ask_for
from bench.live_services import Running, Services, running
from bench.scraped import Scraped
from bench.serving_options import add_service_options, asked_services
from bench.serving_point import NONE, Point, Policy, make_point
from bench.serving_sweep import Sweep
from launcher.prompt_file import load_prompts
from launcher.request_options import RequestOptions
from slipstream.proposers.ngram import NAME as NGRAM

PROMPTS: Final = Path(__file__).with_name("prompts") / "chat_eval.jsonl"


def measure(services: Services, sweep: Sweep, prompts: Sequence[str], until: float = math.inf) -> Iterator[Point]:
    """As many points as can be ended by `until`, by time.monotonic()."""
    tenants = [policy.as_tenant for policy in sweep.policies()]
    with running(services, tenants) as live, asyncio.Runner() as runner:  # grpc.aio wants one event loop for good

        def ask(policy: Policy, temperature: float, streams: int, seconds: float) -> Felt:
            options = RequestOptions(temperature=temperature, max_tokens=sweep.num_tokens, ignore_eos=True, seed=1)
            address = live.gateway.address
            return runner.run(ask_for(address, policy.name, prompts, options, streams=streams, seconds=seconds))

        for policy, temperature, streams in sweep.points():
            warm_seconds = sweep.warm_seconds_of(policy, temperature, streams)
            if time.monotonic() + warm_seconds + sweep.seconds > until:
                return
            ask(policy, temperature, streams, warm_seconds)  # so that nothing counts that is done the first time
            before = _scrape(live)
            felt = ask(policy, temperature, streams, sweep.seconds)
            counted = {name: after.since(before[name]) for name, after in _scrape(live).items()}
            yield make_point(
                policy, felt, counted, temperature=temperature, streams=streams, overlaps=services.overlaps
            )


def _scrape(live: Running) -> dict[str, Scraped]:
    return {name: Scraped.of(address) for name, address in live.metrics.items()}


HEADER: Final = (
    f"{'point':40} {'tok/s':>8} {'x plain':>8} {'TPOT p50':>9} {'TTFT p50':>9} {'acc.len':>8} {'tok/pass':>9} "
    f"{'hits':>5} {'step':>7} {'verify':>7} {'wait':>7} {'draft':>7} {'trip':>7}   ms"
)


def line(point: Point, plain: Point | None) -> str:
    gain = point.tokens_per_second / plain.tokens_per_second if plain and plain.tokens_per_second else 0.0
    told = f"{point.name:40} {point.tokens_per_second:8.1f} {gain:8.2f} {point.tpot_ms['p50']:9.2f} "
    told += f"{point.ttft_ms['p50']:9.1f} {point.acceptance_length:8.2f} {point.committed_per_pass:9.2f} "
    told += f"{point.hit_rate:5.2f} {point.step_ms:7.2f} {point.verify_ms:7.2f} {point.wait_ms:7.2f} "
    told += f"{point.draft_ms:7.2f} {point.round_trip_ms:7.2f}"
    return told + "".join(f"\n  {count} streams failed: {text}" for text, count in point.failures.items())


def plain_beside(point: Point, points: Sequence[Point]) -> Point | None:
    """Of the same run, temperature and load."""
    load = (point.temperature, point.streams)
    return next((p for p in points if p.proposer == NONE and (p.temperature, p.streams) == load), None)


def plot(points: Sequence[Point], file: Path) -> None:
    """Times plain by streams, a panel for each temperature."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    temperatures = sorted({point.temperature for point in points})
    figure, panels = pyplot.subplots(
        1, len(temperatures), squeeze=False, figsize=(6 * len(temperatures), 4), sharey=True
    )
    for panel, temperature in zip(panels[0], temperatures, strict=True):
        here = [point for point in points if point.temperature == temperature]
        for name in dict.fromkeys(point.name.split()[0] for point in here):
            of_name = [point for point in here if point.name.split()[0] == name]
            gains = [_gain(point, points) for point in of_name]
            panel.plot([point.streams for point in of_name], gains, marker="o", label=name)
        panel.set(xscale="log", xlabel="streams", ylabel="tokens a second / plain", title=f"T = {temperature:g}")
        panel.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(file, dpi=120)


def _gain(point: Point, points: Sequence[Point]) -> float:
    plain = plain_beside(point, points)
    return point.tokens_per_second / plain.tokens_per_second if plain and plain.tokens_per_second else 0.0


def hardware(device: str) -> str:
    if device == "cpu":
        return platform.processor() or platform.machine()
    asked = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip().replace("\n", ", ")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_service_options(parser)
    for name, default in (("--streams", "1,8,32,64"), ("--temperatures", "0,1"), ("--modes", "ratio,coupled")):
        parser.add_argument(name, default=default)
    parser.add_argument("--proposers", default="", help="by default those with a folder, then ngram")
    for option, number in (("--draft-tokens", 5), ("--fan-out", 8), ("--tokens", 128)):
        parser.add_argument(option, type=int, default=number)
    parser.add_argument("--ahead-up-to", type=int, default=1 << 20, help="streams with which enumeration is measured")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each point")
    parser.add_argument("--minutes", type=float, default=math.inf, help="of all")
    parser.add_argument("--prompts", type=Path, default=PROMPTS)
    for name in ("--json", "--plot"):
        parser.add_argument(name, type=Path)
    return parser.parse_args()


def asked_sweep(asked: argparse.Namespace, services: Services) -> Sweep:
    with_models = tuple(drafter.proposer for drafter in services.drafters)
    return Sweep(
        proposers=tuple(asked.proposers.split(",")) if asked.proposers else (*with_models, NGRAM),
        streams=streams_of(asked), temperatures=tuple(float(number) for number in asked.temperatures.split(",")),
        modes=tuple(asked.modes.split(",")), num_draft_tokens=asked.draft_tokens, fan_out=asked.fan_out,
        most_ahead=asked.ahead_up_to, num_tokens=asked.tokens, seconds=asked.seconds,
    )  # fmt: skip


def streams_of(asked: argparse.Namespace) -> tuple[int, ...]:
    return tuple(int(number) for number in asked.streams.split(","))


def run(asked: argparse.Namespace, services: Services, until: float) -> list[Point]:
    points: list[Point] = []
    about = {
        "hardware": hardware(asked.device),
        "placement": asked.placement,
        "hands_over": services.hands_over,
        "drafters": [d.model.name for d in services.drafters],
    }
    print(f"{about}; {asked.model.name} {asked.widen}, K = {asked.draft_tokens}\n{HEADER}", flush=True)
    prompts = [prompt.text for prompt in load_prompts(asked.prompts)]
    for point in measure(services, asked_sweep(asked, services), prompts, until):
        points.append(point)
        print(line(point, plain_beside(point, points)), flush=True)
        if asked.json:  # after each one: a run may be cut short
            asked.json.parent.mkdir(parents=True, exist_ok=True)
            asked.json.write_text(json.dumps({**about, "points": [asdict(one) for one in points]}))
    return points


def main() -> None:
    until, asked = time.monotonic(), parse()
    until += 60 * asked.minutes
    with tempfile.TemporaryDirectory() as folder:
        points = run(asked, asked_services(asked, Path(folder), max(streams_of(asked))), until)
    if asked.plot and points:
        plot(points, asked.plot)


if __name__ == "__main__":
    main()
