"""Services for the statistical tests: a patient verifier, and services with one rule of exactness broken.

`python -m tests.e2e.altered_services SERVICE RULE[,RULE] OPTIONS...`. A patient verifier lets every sequence wait for
its drafts, so that the test meets some however busy the machine is. Each wrong rule is one that could well be written;
the test that the right services pass must fail on every one of them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

import drafter_svc.__main__ as drafter_main
import gateway.__main__ as gateway_main
import verifier_svc.__main__ as verifier_main
from drafter_svc.proposers import token_choice
from drafter_svc.proposers.proposer import Proposal
from gateway.proposers.remote import RemoteDrafts
from slipstream.exchange import LAW_TOTAL, DraftToken, LawKind
from slipstream.proposers.ngram import NAME as NGRAM
from slipstream.sampling import draft_law
from verifier_svc import draft_tree, waiting
from verifier_svc import verifier as verifier_domain
from verifier_svc.active_sequence import ActiveSequence
from verifier_svc.patience import Patience

NUM_TRULY_KEPT = 2
CONFIDENT = 0.4


def patient() -> None:
    """Every sequence, not only a lone one, waits up to its bound for a draft, paying or not; for its first token too.

    Where no draft can be used any more none comes, and waiting for one would only take time.
    """
    _wait_for(lambda proposer: True)


def patient_for_remote() -> None:
    """As `patient`, but an n-gram draft at hand is not enough: drafts of two proposers meet in the tree."""
    _wait_for(lambda proposer: proposer != NGRAM)


def _wait_for(wanted: Callable[[str], bool]) -> None:
    def awaits_drafts(self: ActiveSequence) -> bool:
        may_come = self._local.waits_for_others and not self._silent and self.engine.most_draft_tokens > 0
        children = draft_tree._children(self._tree._front)  # not by `best_path`, which a wrong rule may have altered
        return may_come and not any(child.verifiable and wanted(child.proposer) for child in children)

    def next_start(sequences: Collection[ActiveSequence]) -> float:
        starts = (one.wait_ends_at if one.awaits_drafts else waiting.AT_ONCE for one in sequences)
        return max(starts, default=waiting.NEVER)

    _replace(Patience, "seconds", math.inf)
    _replace(ActiveSequence, "awaits_drafts", property(awaits_drafts))
    _replace(verifier_domain, "next_start", next_start)


def restless() -> None:
    """A drafter on CPU cores drafts also where n-gram matching has a draft."""
    _replace(RemoteDrafts, "may_rest", property(lambda self: False))


def draw_from_truncated_law_but_ship_the_whole() -> None:
    """The token comes from the likeliest few, the message says it came from the full distribution."""

    def draw(token_ids: Any, counts: Any, *where: Any) -> Any:
        kept = counts.astype(int)
        kept[:, NUM_TRULY_KEPT:] = 0
        kept[:, 0] += LAW_TOTAL - kept.sum(axis=1)
        return draft_law.draw(token_ids, kept.astype(counts.dtype), *where)

    _replace(token_choice, "draw", draw)


def submit_a_guess_as_a_draft() -> None:
    """Instead of the drawn token the first guessed outcome that leads away from it, as if it had been drawn."""
    right = token_choice.TokenChoice._draw

    def guessed(proposal: Proposal) -> Proposal:
        token = proposal.token
        if token.law is None:
            return proposal
        others = (one for one in proposal.outcomes if one != token.token_id and token.law.probability(one) > 0)
        return replace(proposal, token=replace(token, token_id=next(others, token.token_id)))

    def draw(self: token_choice.TokenChoice, logits: Any, rows: Sequence[Any]) -> list[Proposal]:
        return [guessed(proposal) for proposal in right(self, logits, [replace(row, num_outcomes=8) for row in rows])]

    _replace(token_choice.TokenChoice, "_draw", draw)


def merge_laws_of_two_proposers() -> None:
    """The token that n-gram matching found is verified under the law that the model gave for its own token there."""
    right = draft_tree._walk

    def walk(candidates: Sequence[Any], num_tokens: int, proposer: str) -> list[DraftToken]:
        law = next((node.token.law for node in candidates if node.token.law is not None), None)
        first = right(candidates, num_tokens, proposer)[:1]
        if law is None:
            return first
        return [
            DraftToken(token.token_id, LawKind.SPARSE, law)
            if token.kind is LawKind.ONE_HOT and token.token_id in law.token_ids
            else token
            for token in first
        ]

    _replace(draft_tree, "_walk", walk)


def drop_by_own_confidence() -> None:
    """A token is not submitted if its own draft probability is low."""
    right = draft_tree._walk

    def submitted(token: DraftToken) -> bool:
        return token.law is None or token.law.probability(token.token_id) >= CONFIDENT

    def walk(candidates: Sequence[Any], num_tokens: int, proposer: str) -> list[DraftToken]:
        return list(takewhile(submitted, right(candidates, num_tokens, proposer)))

    _replace(draft_tree, "_walk", walk)


def _replace(owner: Any, name: str, new: object) -> None:
    assert hasattr(owner, name), f"{owner} has no {name} any more: nothing would be altered"
    setattr(owner, name, new)


DRAFTER_RULES: dict[str, Callable[[], None]] = {
    rule.__name__: rule for rule in (draw_from_truncated_law_but_ship_the_whole, submit_a_guess_as_a_draft)
}
VERIFIER_RULES: dict[str, Callable[[], None]] = {
    rule.__name__: rule for rule in (merge_laws_of_two_proposers, drop_by_own_confidence)
}
SETTINGS: dict[str, Callable[[], None]] = {rule.__name__: rule for rule in (patient, patient_for_remote, restless)}
MAINS = {"verifier": verifier_main, "drafter": drafter_main, "gateway": gateway_main}


if __name__ == "__main__":
    service, rules = sys.argv.pop(1), sys.argv.pop(1)
    for rule in rules.split(","):
        (DRAFTER_RULES | VERIFIER_RULES | SETTINGS)[rule]()
    MAINS[service].app()
