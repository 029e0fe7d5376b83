"""The waiting rule: when the next step starts. Knows what each sequence is waiting for; starts nothing itself.

A step starts as soon as any sequence is ready, and takes all that are. A sequence with tokens to compute is always
ready, with one exception: a *lone* sequence whose next drafts may be on their way is given time for them, because a
pass without drafts costs as much as one with them and there is nobody else to use the time. With more than one sequence
open nobody waits: a batch never stalls for one sequence's miss, and who has no drafts goes on with a local n-gram draft
or with none.

The lone sequence waits for as long as its drafts are worth, by its own passes (patience.py), and for at most its
`max_wait_us`, from the moment it became ready; and only if

* it may be drafted at all (K > 0, and room for a draft and a token after it),
* only its last token is to be computed (a prompt is work enough meanwhile),
* it has no path in its draft tree,
* one of its proposers sends drafts from elsewhere, and did not let the last wait run out in silence: a drafter that is
  gone costs one wait, not one per pass. Its next message makes it worth waiting for again.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from verifier_svc.active_sequence import ActiveSequence

AT_ONCE = -math.inf
NEVER = math.inf  # not before an event changes something


def next_start(sequences: Collection[ActiveSequence]) -> float:
    """When the next step may start, by the clock that `ready_at` is read from."""
    if not sequences:
        return NEVER
    if len(sequences) > 1:
        return AT_ONCE
    (lone,) = sequences
    return lone.wait_ends_at if lone.awaits_drafts else AT_ONCE
