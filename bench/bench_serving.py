"""Serving, measured at its clients, for each way of drafting beside plain decoding of the same run.

    python -m bench.bench_serving [--device cuda --drafter-device cuda:1 --widen 8b] [--draft-model DIR]
        [--streams 1,8,32,64] [--temperatures 0,1] [--seconds 5] [--json FILE] [--plot FILE]

Verifier, drafters and gateway run as processes of their own; prompts are those of bench/prompts. Every point takes
`--seconds`, whatever is measured in it: proposers x enumeration off and on x modes (where T > 0) x streams. After each
one a line: tokens a second and how many times plain, times, acceptance, hits, and where a pass's time went.
`bench.simulate --against FILE` predicts the same figures. `--plot` needs matplotlib (`pip install slipstream[eval]`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from bench.clients import Felt, ask_for
from bench.live_services import Drafter, Running, Services, running
from bench.scraped import Scraped
from bench.serving_point import NONE, Point, Policy, make_point
from gateway.policy.tenants import DRAFT_MODEL, EAGLE3, PARD
from launcher.prompt_file import load_prompts
from launcher.request_options import RequestOptions
from slipstream.config import default_model_dir
from slipstream.proposers.ngram import NAME as NGRAM

PROMPTS: Final = Path(__file__).with_name("prompts") / "chat_eval.jsonl"
WARM_SECONDS: Final = 2.0  # of each policy, before anything counts


@dataclass(frozen=True, kw_only=True, slots=True)
class Sweep:
    """What is asked."""

    proposers: tuple[str, ...]
    streams: tuple[int, ...] = (1, 8, 32, 64)
    temperatures: tuple[float, ...] = (0.0, 1.0)
    modes: tuple[str, ...] = ("ratio", "coupled")
    num_draft_tokens: int = 5
    fan_out: int = 8  # where enumeration is on
    num_tokens: int = 128  # of an answer
    seconds: float = 5.0  # of a point

    def policies(self) -> Iterator[Policy]:
        """Plain decoding first."""
        yield Policy(proposer=NONE)
        for proposer in self.proposers:
            fan_outs = (0,) if proposer == NGRAM else (0, self.fan_out)
            for mode in self.modes if proposer != NONE else ():
                for fan_out in fan_outs:
                    yield Policy(proposer=proposer, mode=mode, num_draft_tokens=self.num_draft_tokens, fan_out=fan_out)

    def points(self) -> Iterator[tuple[Policy, float, int]]:
        """At T = 0 both modes are one."""
        for temperature in self.temperatures:
            for num_streams in self.streams:
                for policy in self.policies():
                    if temperature > 0 or policy.mode == self.modes[0] or policy.proposer == NONE:
                        yield policy, temperature, num_streams


def measure(services: Services, sweep: Sweep, prompts: Sequence[str]) -> Iterator[Point]:
    tenants = [policy.as_tenant for policy in sweep.policies()]
    with running(services, tenants) as live, asyncio.Runner() as runner:  # grpc.aio wants one event loop for good

        def ask(policy: Policy, temperature: float, streams: int, seconds: float) -> Felt:
            options = RequestOptions(temperature=temperature, max_tokens=sweep.num_tokens, ignore_eos=True, seed=1)
            address = live.gateway.address
            return runner.run(ask_for(address, policy.name, prompts, options, streams=streams, seconds=seconds))

        for policy in sweep.policies():  # so that nothing is done for the first time in what is measured
            ask(policy, 0.0, 1, min(WARM_SECONDS, sweep.seconds))
        for policy, temperature, streams in sweep.points():
            before = _scrape(live)
            felt = ask(policy, temperature, streams, sweep.seconds)
            counted = {name: after.since(before[name]) for name, after in _scrape(live).items()}
            yield make_point(
                policy, felt, counted, temperature=temperature, streams=streams, overlaps=services.overlaps
            )


def _scrape(live: Running) -> dict[str, Scraped]:
    services = {"verifier": live.verifier, "gateway": live.gateway, **live.drafters}
    return {name: Scraped.of(service.metrics_address) for name, service in services.items()}


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
    parser.add_argument("--model", type=Path, default=default_model_dir() / "smollm2-135m-instruct")
    for name in ("--draft-model", "--eagle3", "--pard"):
        parser.add_argument(name, type=Path, help="folder; without it this proposer is left out")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--drafter-device", default="", help="by default the verifier's")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--widen", default="")
    parser.add_argument("--kv-memory-mib", type=int, default=512)
    parser.add_argument("--threads", type=int, default=1, help="of the verifier")
    for name, default in (("--streams", "1,8,32,64"), ("--temperatures", "0,1"), ("--modes", "ratio,coupled")):
        parser.add_argument(name, default=default)
    parser.add_argument("--proposers", default="", help="by default ngram and those with a folder")
    for option, number in (("--draft-tokens", 5), ("--fan-out", 8), ("--tokens", 128)):
        parser.add_argument(option, type=int, default=number)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each point")
    parser.add_argument("--prompts", type=Path, default=PROMPTS)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    return parser.parse_args()


def main() -> None:
    asked = parse()
    folders = {DRAFT_MODEL: asked.draft_model, EAGLE3: asked.eagle3, PARD: asked.pard}
    device = asked.drafter_device or asked.device
    drafters = tuple(Drafter(model=path, proposer=name, device=device) for name, path in folders.items() if path)
    services = Services(
        model=asked.model, device=asked.device, dtype=asked.dtype, widen=asked.widen, num_threads=asked.threads,
        kv_memory_mib=asked.kv_memory_mib, drafters=drafters,
    )  # fmt: skip
    sweep = Sweep(
        proposers=tuple(asked.proposers.split(",")) if asked.proposers else (NGRAM, *(d.proposer for d in drafters)),
        streams=tuple(int(number) for number in asked.streams.split(",")),
        temperatures=tuple(float(number) for number in asked.temperatures.split(",")),
        modes=tuple(asked.modes.split(",")),
        num_draft_tokens=asked.draft_tokens, fan_out=asked.fan_out, num_tokens=asked.tokens, seconds=asked.seconds,
    )  # fmt: skip
    print(f"{hardware(asked.device)}; {asked.model.name} {asked.widen}, K = {asked.draft_tokens}\n{HEADER}", flush=True)
    points: list[Point] = []
    for point in measure(services, sweep, [prompt.text for prompt in load_prompts(asked.prompts)]):
        points.append(point)
        print(line(point, plain_beside(point, points)), flush=True)
        if asked.json:  # after each one: a run may be cut short
            asked.json.write_text(json.dumps({"points": [asdict(one) for one in points]}))
    if asked.plot:
        plot(points, asked.plot)


if __name__ == "__main__":
    main()
