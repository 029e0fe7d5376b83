"""Kills a drafter process under load, starts it again, and tells what the streams felt.

    python -m bench.kill_drafter --draft-model DIR [--device cuda --widen 8b] [--streams 32] [--json FILE]

Verifier, gateway and drafter run as processes. Plain decoding is measured first, then drafting; under that the drafter
is killed (SIGKILL) and started anew at its address. Reported are the streams that failed, how long after the kill
throughput was plain's, and how long after the new drafter served it was what it had been before.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from bench.clients import Felt, ask_for, ask_into, requests
from bench.live_services import START_SECONDS, Running, Services, drafter_options, running, start
from bench.serving_options import add_service_options, asked_services
from bench.serving_point import NONE, Policy
from gateway.policy.tenants import DRAFT_MODEL
from launcher.processes import ProcessConfig, Processes
from launcher.prompt_file import load_prompts
from launcher.request_options import RequestOptions

PROMPTS: Final = Path(__file__).with_name("prompts") / "chat_eval.jsonl"
LOOK_SECONDS: Final = 0.1
WINDOW: Final = 5  # looks that a rate is the mean of
ENOUGH: Final = 0.95  # of a rate, to count as reached
WARM_SECONDS: Final = 1.5
LONGEST: Final = 300.0  # seconds that streams may ask for; they end before
MAX_TOKENS: Final = 384  # of an answer
PLAIN: Final = Policy(proposer=NONE)
DRAFTED: Final = Policy(proposer=DRAFT_MODEL, num_draft_tokens=5)

Look = tuple[float, int]  # time.monotonic(), tokens that all streams have got by then


@dataclass(frozen=True, kw_only=True, slots=True)
class Times:
    """Of one run, in seconds. How long each part is watched."""

    plain: float = 3.0
    drafted: float = 4.0
    without: float = 3.0  # between the kill and the new start
    again: float = 6.0  # after the new one serves


@dataclass(frozen=True, kw_only=True, slots=True)
class Recovery:
    """Rates are tokens a second; a time is None if what it waits for did not happen."""

    streams: int
    plain: float
    drafted: float
    lowest: float  # of any window while there was no drafter
    again: float  # over the last windows
    seconds_to_plain: float | None  # from the kill to the begin of the first window with plain's rate
    seconds_to_start: float  # from the new start to health
    seconds_to_drafted: float | None  # from health to the begin of the first window with the rate before the kill
    failures: dict[str, int]


def rates(looks: Sequence[Look]) -> list[tuple[float, float]]:
    """When each window began, and its tokens a second."""
    pairs = zip(looks, looks[WINDOW:], strict=False)
    return [(began, (later - earlier) / (ended - began)) for (began, earlier), (ended, later) in pairs]


def reached(looks: Sequence[Look], since: float, rate: float) -> float | None:
    """Seconds from then to the beginning of the first window with enough of that rate; None if there is none."""
    found = (began - since for began, found in rates(looks) if began >= since and found >= ENOUGH * rate)
    return next(found, None)


def mean_rate(looks: Sequence[Look], since: float, until: float) -> float:
    within = [look for look in looks if since <= look[0] <= until]
    if len(within) < 2:
        return 0.0
    return (within[-1][1] - within[0][1]) / (within[-1][0] - within[0][0])


async def watch(felt: Felt, looks: list[Look]) -> None:
    """Until cancelled."""
    while True:
        looks.append((time.monotonic(), felt.num_tokens))
        await asyncio.sleep(LOOK_SECONDS)


async def under_load(
    live: Running, felt: Felt, again: Callable[[], None], times: Times
) -> tuple[list[Look], tuple[float, float, float]]:
    """What was watched, and when the drafter was killed, started anew and healthy."""
    looks: list[Look] = []
    watching = asyncio.create_task(watch(felt, looks))
    await asyncio.sleep(WARM_SECONDS + times.drafted)
    killed = time.monotonic()
    live.drafters[DRAFT_MODEL].kill()
    await asyncio.sleep(times.without)
    started = time.monotonic()
    await asyncio.to_thread(again)
    healthy = time.monotonic()
    await asyncio.sleep(times.again)
    watching.cancel()
    return looks, (killed, started, healthy)


async def run(live: Running, again: Callable[[], None], streams: int, times: Times) -> Recovery:
    """`again` starts a drafter where the old one was, and returns when it is healthy."""
    prompts = [prompt.text for prompt in load_prompts(PROMPTS)]
    options = RequestOptions(temperature=0.0, max_tokens=MAX_TOKENS, ignore_eos=True, seed=1)
    address = live.gateway.address
    await ask_for(address, PLAIN.name, prompts, options, streams=streams, seconds=WARM_SECONDS)
    plain = await ask_for(address, PLAIN.name, prompts, options, streams=streams, seconds=times.plain)
    felt, left = Felt(), requests(prompts, options)
    asking = asyncio.create_task(ask_into(felt, address, DRAFTED.name, left, streams=streams, seconds=LONGEST))
    looks, moments = await under_load(live, felt, again, times)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    return recovery_of(looks, moments, times, streams, plain.tokens_per_second, felt)


def recovery_of(
    looks: Sequence[Look],
    moments: tuple[float, float, float],  # killed, started, healthy
    times: Times,
    streams: int,
    plain: float,
    felt: Felt,
) -> Recovery:
    killed, started, healthy = moments
    drafted, ended = mean_rate(looks, killed - times.drafted, killed), looks[-1][0]
    return Recovery(
        streams=streams,
        plain=plain,
        drafted=drafted,
        lowest=min((rate for began, rate in rates(looks) if killed <= began <= started), default=0.0),
        again=mean_rate(looks, ended - times.again / 2, ended),
        seconds_to_plain=reached(looks, killed, plain),
        seconds_to_start=healthy - started,
        seconds_to_drafted=reached(looks, healthy, drafted),
        failures=dict(felt.failures),
    )


def measure(services: Services, streams: int, times: Times) -> Recovery:
    (drafter,) = services.drafters
    patient = ProcessConfig(start_seconds=START_SECONDS)
    tenants = [PLAIN.as_tenant, DRAFTED.as_tenant]
    with running(services, tenants) as live, Processes(patient) as processes, asyncio.Runner() as runner:

        def again() -> None:
            options = [*drafter_options(services, drafter), "--listen", live.drafters[DRAFT_MODEL].address]
            service = start(processes, "drafter_svc", *options, num_threads=drafter.num_threads, cores=drafter.cores)
            processes.wait_ready(service)

        return runner.run(run(live, again, streams, times))


def in_seconds(value: float | None) -> str:
    return "   never" if value is None else f"{value:6.2f} s"


def show(recovery: Recovery) -> None:
    print(f"{recovery.streams} streams, tokens a second: plain {recovery.plain:.0f}, ", end="")
    print(f"with a drafter {recovery.drafted:.0f}, ", end="")
    print(f"without it at least {recovery.lowest:.0f} in any window, with a new one {recovery.again:.0f}")
    print(f"streams failed                              {sum(recovery.failures.values()):6d}   wanted 0")
    print(f"from the kill to plain's throughput         {in_seconds(recovery.seconds_to_plain)} wanted 1")
    print(f"from health to the throughput before        {in_seconds(recovery.seconds_to_drafted)} wanted 5")
    print(f"from the new start to health                {recovery.seconds_to_start:6.2f} s")
    for text, count in recovery.failures.items():
        print(f"  {count} streams: {text}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_service_options(parser)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--json", type=Path)
    for name, seconds in asdict(Times()).items():
        parser.add_argument(f"--{name}", type=float, default=seconds, help="seconds that it is watched")
    asked = parser.parse_args()
    times = Times(plain=asked.plain, drafted=asked.drafted, without=asked.without, again=asked.again)
    with tempfile.TemporaryDirectory() as folder:
        recovery = measure(asked_services(asked, Path(folder), asked.streams), asked.streams, times)
    show(recovery)
    if asked.json:
        asked.json.write_text(json.dumps(asdict(recovery)))


if __name__ == "__main__":
    main()
