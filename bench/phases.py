"""One tenant on `auto` asks for stories at T = 0, then at 1.5, then at 0 again: who drafts in each phase, and why.

    python -m bench.phases [--draft-model DIR] [--streams 2] [--stories 6] [--tokens 96]

Real services on this machine's cores, as `slipstream up` runs them. While a phase runs, every change of who drafts is
a line with what `slipstream status --policy` knows about it. At its end comes what was done in its second half: how
often nobody drafted when one looked, and tokens drafted and taken. Wanted: at T = 1.5 mostly nobody drafts, in the
phases beside it mostly somebody does. Exits with 1 if not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from bench.live_services import tenant
from bench.local_stack import running_on_cores
from bench.mixed_load import Recorded, load_recorded, replay
from bench.scraped import Scraped
from launcher.demo import DRAFTERS, find_draft_model
from launcher.policy_status import PolicyStatus, policies_in
from launcher.scrape import metrics_text
from slipstream.config import default_model_dir

NAME: Final = "story"
TEMPERATURES: Final = (0.0, 1.5, 0.0)
MOSTLY: Final = 0.75  # of looks
LOOK_SECONDS: Final = 0.25
SECONDS: Final = 10.0  # for an answer of a service's metrics


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """Its second half."""

    temperature: float
    looks: dict[str, int]  # while all streams ran, by who drafted
    why: str  # at its end
    promised: str  # likewise
    drafted: float  # draft tokens checked for each token that became final
    accepted: float  # of these, tokens that were drafted

    @property
    def share_off(self) -> float:
        """Of looks at which nobody drafted."""
        return self.looks.get("none", 0) / max(1, sum(self.looks.values()))

    def line(self) -> str:
        told = f"T = {self.temperature:g}: off in {self.share_off:.2f} of looks ({self.looks}); at the end: {self.why}"
        return f"{told}; {self.drafted:.2f} tokens drafted and {self.accepted:.2f} taken for each that became final"


class Watch:
    """Looks at a gateway's decisions for one range of temperatures."""

    def __init__(self, metrics: str) -> None:
        self.looks: Counter[str] = Counter()  # by who drafted
        self._metrics = metrics
        self._told = ""

    async def now(self, temperature: float) -> PolicyStatus:
        """Of the group that requests of this temperature are in; with no way before there was one."""
        text = await asyncio.to_thread(metrics_text, self._metrics, SECONDS)
        found = {policy.temperature: policy for policy in policies_in(text or "") if policy.tenant == NAME}
        return found.get("greedy" if temperature == 0 else "high", PolicyStatus())

    async def follow(self, temperature: float, num_streams: int) -> None:
        """Until cancelled: tells changes of who drafts, and counts looks while all streams run."""
        while True:
            policy = await self.now(temperature)
            if policy.requests == num_streams:
                self.looks[policy.way] += 1
            if policy.way and policy.way != self._told:
                self._told = policy.way
                stand = ", ".join(f"{name} {share:.2f}" for name, share in policy.acceptance.items())
                print(f"  {policy.way} K = {policy.num_draft_tokens}: {policy.why}; {promised(policy)}; stand: {stand}")
            await asyncio.sleep(LOOK_SECONDS)


def promised(policy: PolicyStatus) -> str:
    ways = [f"{way} {rate:.1f} (K = {policy.best_draft_tokens[way]})" for way, rate in policy.goodput.items()]
    return f"promised: {', '.join(ways)}"


async def run_phase(gateway: str, metrics: tuple[str, str], load: Sequence[Recorded], streams: int) -> Phase:
    """`metrics`: of the gateway and of the verifier."""
    temperature, middle = load[0].temperature, len(load) // 2
    watch = Watch(metrics[0])
    following = asyncio.create_task(watch.follow(temperature, streams))
    await replay(gateway, NAME, load[:middle], streams)
    before = await asyncio.to_thread(Scraped.of, metrics[1])
    watch.looks.clear()
    await replay(gateway, NAME, load[middle:], streams)
    counted = (await asyncio.to_thread(Scraped.of, metrics[1])).since(before)
    following.cancel()
    policy = await watch.now(temperature)
    committed = max(1.0, counted.total("slipstream_committed_tokens_total", tenant=NAME))
    return Phase(
        temperature=temperature,
        looks=dict(watch.looks),
        why=policy.why,
        promised=promised(policy),
        drafted=counted.total("slipstream_spec_decode_num_draft_tokens_total", tenant=NAME) / committed,
        accepted=counted.total("slipstream_spec_decode_num_accepted_tokens_total", tenant=NAME) / committed,
    )


async def run(gateway: str, metrics: tuple[str, str], asked: argparse.Namespace) -> list[Phase]:
    prompts = [recorded.prompt for recorded in load_recorded() if recorded.kind == "story"]
    phases = []
    for temperature in TEMPERATURES:
        load = [
            Recorded(
                kind="story", prompt=prompts[index % len(prompts)], temperature=temperature, max_tokens=asked.tokens
            )
            for index in range(2 * asked.stories)
        ]
        phases.append(await run_phase(gateway, metrics, load, asked.streams))
        print(phases[-1].line(), phases[-1].promised, sep="\n  ", flush=True)
    return phases


def as_wanted(phases: Sequence[Phase]) -> bool:
    before, hot, after = phases
    return hot.share_off > MOSTLY and max(before.share_off, after.share_off) < 1 - MOSTLY


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=default_model_dir() / "smollm2-135m-instruct")
    parser.add_argument("--draft-model", type=Path, default=find_draft_model(DRAFTERS))
    parser.add_argument("--threads", type=int, default=0, help="of the verifier; by default all cores")
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--stories", type=int, default=6, help="of each half of a phase")
    parser.add_argument("--tokens", type=int, default=96, help="of a story")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    policy = tenant(NAME, proposers="auto", num_draft_tokens=8)
    with running_on_cores(asked.model, asked.draft_model, [policy], asked.threads) as stack:
        metrics = stack.services[-1].spec.metrics, stack.services[0].spec.metrics
        phases = asyncio.run(run(stack.gateway, metrics, asked))
    if asked.json:
        asked.json.write_text(json.dumps([asdict(phase) for phase in phases]))
    print("off at T = 1.5 and on beside it" if as_wanted(phases) else "NOT as wanted")
    sys.exit(not as_wanted(phases))


if __name__ == "__main__":
    main()
