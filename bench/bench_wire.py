"""What the wire costs: round trips, bytes and host time between verifier, gateway and drafter on loopback.

    python -m bench.bench_wire [--seconds 2] [--streams 1,32] [--json]

All three run as processes, on tiny models; drafts are nearly always right, and cheap. Two gateways share one verifier
and one drafter: the first talks to them directly and gives times, the second through relays in this process, which
count bytes and would falsify times. The verifier times the whole round trip, verifier, gateway, drafter, gateway,
verifier, from a commit going out to the first draft on it coming in; the gateway its own half, to the drafter and back.
The drafter does not run ahead (fan-out 0). What it held is told beside: a mean over all its batches, which with several
streams are not those that answered a commit in time. What is left is what a direct link would save.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import yaml
from safetensors.torch import load_file, save_file

from bench.clients import ask_for
from bench.live_services import Drafter, Running, Services, running, start, tenant
from bench.relay import relayed
from bench.scraped import Scraped
from launcher.processes import Processes
from launcher.request_options import RequestOptions
from slipstream.models.derive import truncate_layers
from tests.tiny_models import make_checkpoint

K: Final = 4
TENANT: Final = "wire"
ROUND_TRIP: Final = "slipstream_draft_round_trip_seconds"
CPU_SECONDS: Final = "process_cpu_seconds_total"
PROMPTS: Final = ("Say something.", "Tell a story.", "What is a wire?")
OPTIONS: Final = RequestOptions(temperature=1.0, max_tokens=256, ignore_eos=True, seed=1)
POLICY: Final = tenant(
    TENANT, proposers=["draft_model"], num_draft_tokens=K, fan_out=0, max_wait_ms=1000, max_concurrent=1024
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Hops:
    """Means over one load."""

    streams: int
    tokens_per_second: float
    round_trip_ms: float  # verifier to verifier, what the drafter held included; 0 if no draft came back
    held_ms: float  # that the drafter held a batch, from the newest commit that it answers
    num_round_trips: int  # that it is a mean of
    drafter_trip_ms: float  # gateway to gateway, less what the drafter held
    host_us: dict[str, float]  # processor time of each service's whole process, per verify step
    bytes_each: dict[str, float]  # a commit's or a draft's share of all bytes in its direction

    @property
    def gateway_share(self) -> float:
        """Of the way: what going through the gateway adds to a direct link. 0 if the means do not tell."""
        way = self.round_trip_ms - self.held_ms
        return 1 - self.drafter_trip_ms / way if way > self.drafter_trip_ms else 0.0


def measure(streams: Sequence[int], seconds: float) -> Iterator[Hops]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        model, draft_model = make_models(Path(folder))
        drafter = Drafter(model=draft_model, proposer="draft_model")
        services = Services(model=model, dtype="float32", kv_memory_mib=64, drafters=(drafter,))
        live = stack.enter_context(running(services, [POLICY]))
        tenants = Path(folder) / "tenants.yaml"
        tenants.write_text(yaml.safe_dump({"tenants": [POLICY]}))
        runner = stack.enter_context(asyncio.Runner())
        for num_streams in streams:
            yield runner.run(_measure(live, tenants, num_streams, seconds))


def make_models(folder: Path) -> tuple[Path, Path]:
    """A target and a draft model that computes the same with one of its thirty layers, so that waiting pays."""
    model, draft_model = folder / "model", folder / "draft"
    make_checkpoint(model, layers=30, hidden=32, logit_std=5.0, max_position_embeddings=1024)
    weights = load_file(model / "model.safetensors")
    for name, weight in weights.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")) and ".layers.0." not in name:
            weight.zero_()
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    truncate_layers(model, draft_model, 1)
    return model, draft_model


async def _measure(live: Running, tenants: Path, streams: int, seconds: float) -> Hops:
    await ask_for(live.gateway.address, TENANT, PROMPTS, OPTIONS, streams=streams, seconds=seconds / 4)
    before = await asyncio.to_thread(_scrape, live)
    felt = await ask_for(live.gateway.address, TENANT, PROMPTS, OPTIONS, streams=streams, seconds=seconds)
    after = await asyncio.to_thread(_scrape, live)
    counted = {name: one.since(before[name]) for name, one in after.items()}
    steps = counted["verifier"].total("slipstream_step_seconds_count") or 1.0
    return Hops(
        streams=streams,
        tokens_per_second=felt.tokens_per_second,
        round_trip_ms=1e3 * counted["verifier"].mean(ROUND_TRIP),
        held_ms=1e3 * counted["drafter"].mean("slipstream_held_seconds"),
        num_round_trips=round(counted["verifier"].total(f"{ROUND_TRIP}_count")),
        drafter_trip_ms=1e3 * counted["gateway"].mean("slipstream_wire_seconds"),
        host_us={name: 1e6 * one.total(CPU_SECONDS) / steps for name, one in counted.items()},
        bytes_each=await _bytes_each(live, tenants, streams, seconds),
    )


async def _bytes_each(live: Running, tenants: Path, streams: int, seconds: float) -> dict[str, float]:
    async with AsyncExitStack() as stack:
        drafter = live.drafters["draft_model"]
        verifier_address, by_verifier = await stack.enter_async_context(relayed(live.verifier.address))
        drafter_address, by_drafter = await stack.enter_async_context(relayed(drafter.address))
        processes = stack.enter_context(Processes())
        peers = ("--verifier", verifier_address, "--drafter", drafter_address)
        gateway = start(processes, "gateway", *peers, "--tenants", str(tenants))
        await asyncio.to_thread(processes.wait_ready, gateway)
        await asyncio.sleep(1.0)  # its link to the drafter may take longer than the one that it is ready with
        counted_before = await asyncio.to_thread(_scrape, live)
        verifier_before, drafter_before = by_verifier.copy(), by_drafter.copy()
        await ask_for(gateway.address, TENANT, PROMPTS, OPTIONS, streams=streams, seconds=seconds)
        of_verifier, of_drafter = by_verifier.since(verifier_before), by_drafter.since(drafter_before)
        counted = {
            name: one.since(counted_before[name]) for name, one in (await asyncio.to_thread(_scrape, live)).items()
        }
        await asyncio.to_thread(processes.stop)  # while the relays can still pass its farewell on
    commits = counted["verifier"].total("slipstream_passes_total") or 1.0
    drafts = counted["drafter"].total("slipstream_offered_drafts_total") or 1.0
    return {
        "commit, verifier to gateway": of_verifier.num_from_service / commits,
        "commit, gateway to drafter": of_drafter.num_to_service / commits,
        "draft, drafter to gateway": of_drafter.num_from_service / drafts,
        "draft, gateway to verifier": of_verifier.num_to_service / drafts,
    }


def _scrape(live: Running) -> dict[str, Scraped]:
    return {name.replace("draft_model", "drafter"): Scraped.of(address) for name, address in live.metrics.items()}


def show(hops: Hops) -> None:
    print(f"{hops.streams} streams, {hops.tokens_per_second:.0f} tok/s")
    if hops.round_trip_ms:
        print(f"  round trip, verifier to verifier   {hops.round_trip_ms:8.3f} ms, mean of {hops.num_round_trips}")
        print(f"  of that held by the drafter        {hops.held_ms:8.3f} ms")
    print(f"  round trip, gateway to gateway     {hops.drafter_trip_ms:8.3f} ms")
    if hops.gateway_share:
        print(f"  share of the gateway hop           {hops.gateway_share:8.0%}")
    for name, micros in hops.host_us.items():
        print(f"  host time of {name:8} per step     {micros:8.0f} us")
    for direction, num_bytes in hops.bytes_each.items():
        print(f"  {direction:33}  {num_bytes:8.0f} bytes of each sequence and step")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--streams", default="1,32")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    began, found = time.monotonic(), []
    for hops in measure([int(number) for number in asked.streams.split(",")], asked.seconds):
        found.append(hops)
        if not asked.json:
            show(hops)
    if asked.json:
        print(json.dumps([asdict(hops) for hops in found]))
        return
    print(f"{platform.processor() or platform.machine()}, K = {K}, laws on the wire; {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
