"""What the drafter counts and times. Knows instruments; how they are shown is not its matter."""

from __future__ import annotations

from collections.abc import Iterable

from slipstream.exchange import DraftBatch
from slipstream.metrics.instruments import SIZES, Counter, Histogram
from slipstream.metrics.passes import PassTally
from slipstream.sequence_log import sequences_counter


class DrafterMetrics:
    """Every attribute is an instrument. The event loop adds to the last three, the drafter's thread to the others."""

    def __init__(self) -> None:
        self.passes = PassTally()
        self.offered_drafts = Counter("slipstream_offered_drafts", "Paths sent, for guessed outcomes too.")
        self.offered_tokens = Counter("slipstream_offered_tokens", "Tokens in them, assumed ones included.")
        self.step_seconds = Histogram("slipstream_step_seconds", "One draft step of all rows.")
        self.step_rows = Histogram("slipstream_step_rows", "Paths in one draft step.", bounds=SIZES)
        self.step_tokens = Histogram("slipstream_step_tokens", "Tokens fed in one draft step.", bounds=SIZES)
        self.draft_seconds = Histogram("slipstream_draft_seconds", "Computed for one batch of drafts.")
        self.held_seconds = Histogram("slipstream_held_seconds", "From the newest commit answered to the batch.")
        self.unsent_batches = Counter("slipstream_unsent_batches", "Batches dropped because a gateway did not read.")
        self.malformed_messages = Counter("slipstream_malformed_messages", "Messages that made no sense.", ("kind",))
        self.sequences = sequences_counter()

    def record_step(self, seconds: float, *, num_rows: int, num_tokens: int) -> None:
        self.step_seconds.observe(seconds)
        self.step_rows.observe(num_rows)
        self.step_tokens.observe(num_tokens)

    def record_batches(self, batches: Iterable[DraftBatch]) -> None:
        for batch in batches:
            self.offered_drafts.add(len(batch.drafts))
            self.offered_tokens.add(sum(len(draft.tokens) for draft in batch.drafts))
            self.draft_seconds.observe(batch.draft_us * 1e-6)
            self.held_seconds.observe(batch.held_us * 1e-6)
