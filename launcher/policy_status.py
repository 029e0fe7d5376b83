"""`slipstream status --policy`: how each tenant is drafted and why, read from a gateway's metrics. Starts nothing."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from rich.box import SIMPLE_HEAD
from rich.table import Table

REASONS: Final = {
    "fixed": "the policy says so",
    "cold": "nothing was measured yet",
    "best": "promises most tokens a second",
    "held": "another way promises too little more",
    "none_pays": "drafting would hardly give more than it costs",
    "above_temperature": "the policy's gate on temperature",
    "above_running": "the policy's gate on running sequences",
    "below_acceptance": "the policy's gate on acceptance",
}

WORTH_TELLING: Final = 0.05  # of a price

_PREFIX: Final = "slipstream_policy_"

Group = tuple[str, str, str]  # verifier, tenant, range of temperatures


@dataclass(slots=True)
class PolicyStatus:
    """One tenant's requests of one range of temperatures on one verifier."""

    tenant: str = ""
    temperature: str = ""
    verifier: str = ""
    requests: int = 0
    way: str = ""  # who drafts, in order
    num_draft_tokens: int = 0
    fan_out: int = 0
    reason: str = ""
    price: float = 0.0  # seconds that a pass becomes longer while a drafter works for one; 0 until it is known
    goodput: dict[str, float] = field(default_factory=dict)  # by way: tokens a second of the whole verifier
    best_draft_tokens: dict[str, int] = field(default_factory=dict)  # by way
    acceptance: dict[str, float] = field(default_factory=dict)  # by proposer: first draft tokens that stand
    served: dict[str, float] = field(default_factory=dict)  # by proposer: passes that have drafts of it

    @property
    def why(self) -> str:
        return REASONS.get(self.reason, self.reason)


def policies_in(text: str) -> list[PolicyStatus]:
    """Raises ValueError if the text is not Prometheus'."""
    found: defaultdict[Group, PolicyStatus] = defaultdict(PolicyStatus)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith(_PREFIX) and "verifier" in sample.labels:
                _add(found, sample)
    return [found[group] for group in sorted(found, key=lambda group: (group[1], group[2], group[0]))]


def as_json_text(policies: Iterable[PolicyStatus]) -> str:
    return json.dumps([{**asdict(policy), "why": policy.why} for policy in policies])


def as_table(policies: Sequence[PolicyStatus]) -> Table:
    """What drafting takes from passes is shown where it takes anything."""
    has_price = any(policy.price >= WORTH_TELLING for policy in policies)
    table = Table(box=SIMPLE_HEAD, padding=0, show_edge=False)
    table.add_column("tenant", overflow="fold", min_width=7)
    for name in ("at T", "drafts"):
        table.add_column(name, no_wrap=True)
    table.add_column("why", min_width=12)
    for name in ("seqs", "K", "ahead", "tok/s", "plain", "stand", "served"):
        table.add_column(name, justify="right", no_wrap=True)
    if has_price:
        table.add_column("price", justify="right", no_wrap=True)
    for policy in policies:
        drafting = str(policy.num_draft_tokens), str(policy.fan_out)
        words = (policy.tenant, policy.temperature, "\n".join(policy.way.split("+")), policy.why)
        price = [f"{policy.price:.1f}"] if has_price else []
        table.add_row(*words, str(policy.requests), *drafting, *promises(policy), *shares(policy), *price)
    return table


def promises(policy: PolicyStatus) -> tuple[str, str]:
    """Tokens a second, and those without drafts; empty where no controller chose."""
    rates = (policy.goodput.get(way) for way in (policy.way, "none"))
    with_drafts, without = ("" if rate is None else f"{rate:.0f}" for rate in rates)
    return with_drafts, without


def shares(policy: PolicyStatus) -> tuple[str, str]:
    """Beside each that drafts: first tokens that stand, and passes that it serves; empty before any was seen."""
    drafting = [(name, name in policy.acceptance) for name in policy.way.split("+")]
    stand, served = (
        "\n".join(f"{values.get(name, 0.0):.2f}" if seen else "" for name, seen in drafting)
        for values in (policy.acceptance, policy.served)
    )
    return stand, served


def _add(found: Mapping[Group, PolicyStatus], sample: Sample) -> None:
    labels = sample.labels
    policy = found[labels["verifier"], labels["tenant"], labels["temperature"]]
    policy.verifier, policy.tenant, policy.temperature = labels["verifier"], labels["tenant"], labels["temperature"]
    match sample.name.removeprefix(_PREFIX):
        case "draft_tokens":
            policy.way, policy.reason, policy.num_draft_tokens = labels["way"], labels["reason"], int(sample.value)
        case "fan_out":
            policy.fan_out = int(sample.value)
        case "requests":
            policy.requests = int(sample.value)
        case "drafting_price":
            policy.price = sample.value
        case "goodput":
            policy.goodput[labels["way"]] = sample.value
        case "best_draft_tokens":
            policy.best_draft_tokens[labels["way"]] = int(sample.value)
        case "acceptance":
            policy.acceptance[labels["proposer"]] = sample.value
        case "served":
            policy.served[labels["proposer"]] = sample.value
