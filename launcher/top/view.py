"""What services did between two looks: load, rates, acceptance by tenant and proposer. Knows metrics; no terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from launcher.top.look import Look

BUILD = "slipstream_build_info"
PASSES = "slipstream_passes_total"
COMMITTED = "slipstream_committed_tokens_total"
DRAFTED = "slipstream_spec_decode_num_draft_tokens_total"
ACCEPTED = "slipstream_spec_decode_num_accepted_tokens_total"
STEP_SUM, STEP_COUNT = "slipstream_step_seconds_sum", "slipstream_step_seconds_count"


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceView:
    """One service; what it does not show is 0. `running` and `waiting`: requests of a gateway, sequences of others."""

    name: str
    kind: str  # verifier, drafter, gateway; empty if it cannot be reached
    running: int = 0
    waiting: int = 0
    kv_blocks_used: int = 0
    kv_blocks_total: int = 0
    step_ms: float = 0.0  # mean of the steps between the looks
    tokens_per_second: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class DraftingView:
    """One tenant's passes with one proposer's drafts, between the looks."""

    tenant: str
    proposer: str
    tokens_per_second: float
    passes_per_second: float
    tokens_per_pass: float
    acceptance: float | None  # accepted / drafted; None if nothing was drafted


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    seconds: float  # between the looks
    services: tuple[ServiceView, ...]
    drafting: tuple[DraftingView, ...]

    def as_json_text(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class Span:
    """One service, looked at twice."""

    before: Look
    after: Look

    @property
    def seconds(self) -> float:
        return max(1e-9, self.after.at - self.before.at)

    def grown(self, metric: str, **labels: str) -> float:
        """How much a counter has grown; one that was started again counts from 0."""
        before, after = self.before.total(metric, **labels), self.after.total(metric, **labels)
        return after - before if after >= before else after


def make_view(before: Sequence[Look], after: Sequence[Look]) -> View:
    """The looks are at the same services, in the same order."""
    spans = [Span(*looks) for looks in zip(before, after, strict=True)]
    return View(
        seconds=max(span.seconds for span in spans),
        services=tuple(map(_service, spans)),
        drafting=tuple(_drafting(_counting(spans))),
    )


def _service(span: Span) -> ServiceView:
    look = span.after
    if not look.is_there:
        return ServiceView(name=look.name, kind="")
    ((kind,),) = look.values_of(BUILD, "service") or {("",)}
    counts = {"gateway": ("slipstream_running_requests", "slipstream_queued_requests")}
    running, waiting = counts.get(kind, ("slipstream_running_sequences", "slipstream_waiting_sequences"))
    if kind == "drafter":
        running = "slipstream_open_sequences"
    num_steps = span.grown(STEP_COUNT)
    return ServiceView(
        name=look.name,
        kind=kind,
        running=round(look.total(running)),
        waiting=round(look.total(waiting)),
        kv_blocks_used=round(look.total("slipstream_kv_blocks_used")),
        kv_blocks_total=round(look.total("slipstream_kv_blocks")),
        step_ms=1e3 * span.grown(STEP_SUM) / num_steps if num_steps else 0.0,
        tokens_per_second=span.grown(COMMITTED) / span.seconds,
    )


def _counting(spans: Sequence[Span]) -> list[Span]:
    """Those of one kind, for all three count the same passes: gateways, or verifiers where no gateway is looked at."""
    for kind in ("gateway", "verifier", "drafter"):
        of_kind = [span for span in spans if (kind,) in span.after.values_of(BUILD, "service")]
        if of_kind:
            return of_kind
    return []


def _drafting(spans: Sequence[Span]) -> Iterator[DraftingView]:
    """The busiest first; who did nothing between the looks comes last."""
    pairs = {pair for span in spans for pair in span.after.values_of(PASSES, "tenant", "proposer")}
    views = [_of_pair(spans, tenant, proposer) for tenant, proposer in sorted(pairs)]
    yield from sorted(views, key=lambda view: -view.tokens_per_second)


def _of_pair(spans: Sequence[Span], tenant: str, proposer: str) -> DraftingView:
    def rate(metric: str) -> float:
        return sum(span.grown(metric, tenant=tenant, proposer=proposer) / span.seconds for span in spans)

    passes, tokens, drafted = rate(PASSES), rate(COMMITTED), rate(DRAFTED)
    return DraftingView(
        tenant=tenant,
        proposer=proposer,
        tokens_per_second=tokens,
        passes_per_second=passes,
        tokens_per_pass=tokens / passes if passes else 0.0,
        acceptance=rate(ACCEPTED) / drafted if drafted else None,
    )
