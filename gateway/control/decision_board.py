"""Shows how each tenant is drafted and why, as metrics. Knows controllers; how they are asked for is not its matter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from gateway.control.controller import Controller
from gateway.control.decision import Decision, way_name
from gateway.control.group import Group
from gateway.policy.audit import log_decision
from slipstream.metrics.instruments import Counter
from slipstream.proposers.ngram import NAME as NGRAM

_GROUP: Final = ("verifier", "tenant", "temperature")
_BY_GROUP: Final = {
    "slipstream_policy_draft_tokens": ("K of the present decision.", (*_GROUP, "way", "reason")),
    "slipstream_policy_fan_out": ("Outcomes drafted for ahead of a pass.", _GROUP),
    "slipstream_policy_requests": ("Running requests that it is for.", _GROUP),
    "slipstream_policy_drafting_price": ("Seconds that a pass becomes longer while a drafter works for one.", _GROUP),
    "slipstream_policy_goodput": ("Tokens a second that a way of drafting promises at its best K.", (*_GROUP, "way")),
    "slipstream_policy_best_draft_tokens": ("That K.", (*_GROUP, "way")),
    "slipstream_policy_acceptance": ("First draft tokens that stand, estimated.", (*_GROUP, "proposer")),
    "slipstream_policy_served": ("Passes that have drafts of it, estimated.", (*_GROUP, "proposer")),
}

Series = tuple[str, tuple[str, ...], float]  # metric, labels, value


class DecisionBoard:
    """An instrument; also notes every change of a decision."""

    def __init__(self, controllers: Callable[[], Sequence[Controller]]) -> None:
        self.changes = Counter("slipstream_policy_changes", "Changed decisions, by why.", ("tenant", "reason"))
        self._controllers = controllers

    def note_change(self, address: str, group: Group, before: Decision) -> None:
        self.changes.add(1, group.kind.tenant, group.decision.reason)
        log_decision(address, group.kind, before, group.decision)

    def collect(self) -> Sequence[Metric]:
        families = {name: GaugeMetricFamily(name, text, labels=labels) for name, (text, labels) in _BY_GROUP.items()}
        for controller in list(self._controllers()):
            for group in list(controller.groups.values()):
                for name, labels, value in _series(controller, group):
                    families[name].add_metric((controller.address, *group.kind, *labels), value)
        return [*self.changes.collect(), *families.values()]


def _series(controller: Controller, group: Group) -> Iterator[Series]:
    decision = group.decision
    yield "slipstream_policy_draft_tokens", (way_name(decision.way), decision.reason), decision.num_draft_tokens
    yield "slipstream_policy_fan_out", (), decision.fan_out
    yield "slipstream_policy_requests", (), len(group.members)
    price = controller.step_times.price(controller.num_running)
    if price.is_known:
        yield "slipstream_policy_drafting_price", (), price.mean
    for option in decision.options:
        yield "slipstream_policy_goodput", (way_name(option.way),), option.goodput
        yield "slipstream_policy_best_draft_tokens", (way_name(option.way),), option.num_draft_tokens
    measured = [name for name in controller.usable(group) if group.evidence.acceptance(name).drafted.trials]
    for name in measured:
        times = None if name == NGRAM else controller.draft_times[name]
        source = group.evidence.source(name, 1, times)
        yield "slipstream_policy_acceptance", (name,), source.acceptance[0]
        yield "slipstream_policy_served", (name,), source.served
