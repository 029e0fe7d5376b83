"""The waiting rule: when the next step starts. Knows what each sequence is waiting for; starts nothing itself.

A step starts as soon as any sequence is ready, and takes all that are. A sequence with tokens to compute is always
ready, with one exception: those whose next drafts may be on their way are given time for them, because a pass without
drafts costs as much as one with them. That is

* a *lone* sequence, for there is nobody else to use the time,
* several, if the drafts of all that have none come from a drafter in this very process: it drafts for all of them at
  once, and computes where this verifier does, so that a pass without drafts would only slow it down.

Else nobody waits: a batch never stalls for one sequence's miss, and who has no drafts goes on with a local n-gram draft
or with none.

The lone sequence waits for as long as its drafts are worth, by its own passes (patience.py), and for at most its
`max_wait_us`, from the moment it became ready; and only if

* it may be drafted at all (K > 0, and room for a draft and a token after it),
* only its last token is to be computed (a prompt is work enough meanwhile),
* it has no path in its draft tree,
* one of its proposers sends drafts from elsewhere, and did not let the last wait run out in silence: a drafter that is
  gone costs one wait, not one per pass. Its next message makes it worth waiting for again.

Several wait for as long as the drafts of those that have none are worth to all: a wait delays everyone.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from verifier_svc.active_sequence import ActiveSequence

AT_ONCE = -math.inf
NEVER = math.inf  # not before an event changes something


def next_start(sequences: Collection[ActiveSequence]) -> float:
    """When the next step may start, by the clock that `ready_at` is read from."""
    if not sequences:
        return NEVER
    awaiting = [active for active in sequences if active.awaits_drafts]
    if len(sequences) == 1 and awaiting:
        return awaiting[0].wait_ends_at
    if awaiting and all(active.is_drafted_beside for active in awaiting):
        return _shared_start(awaiting, len(sequences))
    return AT_ONCE


def _shared_start(awaiting: Sequence[ActiveSequence], num_sequences: int) -> float:
    """A step of one token each, and what drafts bring to those that have some, would take a pass; now it takes longer.

    Drafts that bring `gain` tokens beyond `without` are worth gain / without passes.
    """
    gain = sum(active.patience.gain for active in awaiting)
    without = num_sequences + gain / len(awaiting) * (num_sequences - len(awaiting))
    one_pass = max(active.patience.pass_seconds for active in awaiting)
    most = min(active.max_wait_us for active in awaiting) * 1e-6
    return max(active.ready_at for active in awaiting) + min(most, gain / without * one_pass)
