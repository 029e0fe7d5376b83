"""One point of a serving measurement: what was asked, and its figures from what clients felt and services counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bench.clients import Felt
from bench.live_services import tenant
from bench.scraped import Scraped
from launcher.bench_report import percentiles
from launcher.figures import Figures

NONE = "none"
AUTO = "auto"  # the gateway's controller decides
MAX_WAIT_MS = 50.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """A tenant of the measurement."""

    proposer: str
    mode: str = "ratio"
    num_draft_tokens: int = 0
    fan_out: int = 0

    @property
    def name(self) -> str:
        enumeration = f"-fan{self.fan_out}" if self.fan_out else ""
        return self.proposer if self.proposer in (NONE, AUTO) else f"{self.proposer}{enumeration}-{self.mode}"

    @property
    def as_tenant(self) -> dict[str, Any]:
        return tenant(
            self.name,
            proposers=[self.proposer],
            mode=self.mode,
            num_draft_tokens=self.num_draft_tokens,
            fan_out=self.fan_out,
            max_wait_ms=MAX_WAIT_MS,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """Times are means in milliseconds, but for the first two, which are percentiles."""

    name: str
    proposer: str
    mode: str
    temperature: float
    streams: int
    num_draft_tokens: int
    fan_out: int
    overlaps: bool
    max_wait_ms: float
    tokens_per_second: float
    decode_tokens_per_second: float  # prompts left out
    ttft_ms: dict[str, float]
    tpot_ms: dict[str, float]
    acceptance_length: float
    committed_per_pass: float
    hit_rate: float  # of passes with room for drafts: those whose drafts were there at once
    acceptance_per_position: list[float]  # those before it accepted
    step_ms: float  # of the verifier, whole
    step_tokens: float
    verify_ms: float  # model and verification
    wait_ms: float  # of a pass, for drafts or for the others
    draft_step_ms: float  # of the drafter, all rows
    draft_ms: float  # computed for one batch of drafts
    round_trip_ms: float  # commit out at the verifier to draft in there, less what the drafter held, or computed
    num_answers: int
    failures: dict[str, int]


def make_point(
    policy: Policy,
    felt: Felt,
    counted: Mapping[str, Scraped],  # since the point began, by service; a drafter's under its proposer
    *,
    temperature: float,
    streams: int,
    overlaps: bool,
) -> Point:
    verifier, gateway, drafter = counted["verifier"], counted["gateway"], _drafter(counted, policy)
    ours = {"tenant": policy.name}
    drafts = verifier.total("slipstream_spec_decode_num_drafts_total", **ours)
    accepted = verifier.total("slipstream_spec_decode_num_accepted_tokens_total", **ours)
    return Point(
        name=f"{policy.name} T={temperature:g} x{streams}",
        proposer=policy.proposer,
        mode=policy.mode,
        temperature=temperature,
        streams=streams,
        num_draft_tokens=policy.num_draft_tokens,
        fan_out=policy.fan_out,
        overlaps=overlaps,
        max_wait_ms=MAX_WAIT_MS,
        tokens_per_second=felt.tokens_per_second,
        decode_tokens_per_second=felt.decode_rate(streams),
        ttft_ms=percentiles(felt.first_token_seconds),
        tpot_ms=percentiles(felt.output_token_seconds),
        acceptance_length=1 + ratio(accepted, drafts),
        committed_per_pass=ratio(
            verifier.total("slipstream_committed_tokens_total", **ours),
            verifier.total("slipstream_passes_total", **ours),
        ),
        hit_rate=ratio(
            verifier.total("slipstream_tree_hits_total", **ours), verifier.total("slipstream_tree_ready_total", **ours)
        ),
        acceptance_per_position=conditional_acceptance(felt.figures) or whole_drafts_acceptance(verifier, policy.name),
        step_ms=1e3 * verifier.mean("slipstream_step_seconds"),
        step_tokens=verifier.mean("slipstream_step_tokens"),
        verify_ms=1e3 * verifier.mean("slipstream_verify_seconds"),
        wait_ms=1e3 * verifier.mean("slipstream_wait_seconds", **ours),
        draft_step_ms=1e3 * drafter.mean("slipstream_step_seconds"),
        draft_ms=1e3 * gateway.mean("slipstream_draft_seconds", **ours),
        round_trip_ms=1e3 * _round_trip_seconds(counted, policy),
        num_answers=felt.num_answers,
        failures=dict(felt.failures),
    )


def _round_trip_seconds(counted: Mapping[str, Scraped], policy: Policy) -> float:
    """The gateway sees one of two legs that are alike: bench_wire.py. What is handed over in memory the verifier times:

    of that all is the way that the drafter does not compute.
    """
    leg = counted["gateway"].mean("slipstream_wire_seconds", tenant=policy.name)
    if leg:
        return 2 * leg
    whole = counted["verifier"].mean("slipstream_draft_round_trip_seconds", proposer=policy.proposer)
    return max(0.0, whole - counted["gateway"].mean("slipstream_draft_seconds", tenant=policy.name))


def _drafter(counted: Mapping[str, Scraped], policy: Policy) -> Scraped:
    """The one that drafts by this policy; the controller may ask any, and the first stands for all."""
    others = [one for name, one in counted.items() if name not in ("verifier", "gateway")]
    fallback = others[0] if others and policy.proposer == AUTO else Scraped({})
    return counted.get(policy.proposer, fallback)


def conditional_acceptance(figures: Figures) -> list[float]:
    """Of draft tokens submitted behind accepted ones, how many were accepted; how long a draft is has no say in it."""
    found: list[float] = []
    accepted_before, submitted_before = float(figures.num_drafts), float(figures.num_drafts)
    pairs = zip(figures.accepted_per_position, figures.submitted_per_position, strict=False)
    for accepted, submitted in pairs:
        reached = accepted_before * ratio(submitted, submitted_before)
        if not reached:
            break
        found.append(min(1.0, accepted / reached))
        accepted_before, submitted_before = accepted, submitted
    return found


def whole_drafts_acceptance(verifier: Scraped, tenant_name: str) -> list[float]:
    """The same if no answer was finished and only the verifier knows: as if every draft had all K tokens."""
    ours = {"tenant": tenant_name}
    accepted = verifier.by("position", "slipstream_spec_decode_num_accepted_tokens_per_pos_total", **ours)
    by_position = [accepted[position] for position in sorted(accepted, key=int) if accepted[position]]
    reached = [verifier.total("slipstream_spec_decode_num_drafts_total", **ours), *by_position]
    return [ratio(later, earlier) for earlier, later in pairwise(reached)]


def ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
