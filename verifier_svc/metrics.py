"""What the verifier counts and times. Knows instruments; how they are shown is not its matter."""

from __future__ import annotations

from slipstream.exchange import Commit, StepReport
from slipstream.metrics.instruments import SIZES, Counter, Histogram
from slipstream.metrics.passes import NO_PROPOSER, PassTally
from slipstream.sequence_log import sequences_counter

_TENANT_AND_PROPOSER = ("tenant", "proposer")


class VerifierMetrics:
    """Every attribute is an instrument. The event loop adds to the last three, the engine thread to the others."""

    def __init__(self) -> None:
        self.passes = PassTally()
        self.tree_ready = Counter(
            "slipstream_tree_ready", "Verify passes that had room for drafts.", _TENANT_AND_PROPOSER
        )
        self.tree_hits = Counter(
            "slipstream_tree_hits", "Of those, how many had a draft when they became ready.", _TENANT_AND_PROPOSER
        )
        self.dropped_drafts = Counter("slipstream_dropped_drafts", "Drafts not put into a tree.", ("reason",))
        self.step_seconds = Histogram("slipstream_step_seconds", "One step, from scheduling to commits.")
        self.verify_seconds = Histogram("slipstream_verify_seconds", "Model and verification, of one step.")
        self.step_sequences = Histogram("slipstream_step_sequences", "Sequences in one step.", bounds=SIZES)
        self.step_tokens = Histogram("slipstream_step_tokens", "Tokens fed in one step, drafts included.", bounds=SIZES)
        self.queue_seconds = Histogram("slipstream_queue_seconds", "From open to the first step.", ("tenant",))
        self.wait_seconds = Histogram(
            "slipstream_wait_seconds", "From ready to the start of the pass.", _TENANT_AND_PROPOSER
        )
        self.round_trip_seconds = Histogram(
            "slipstream_draft_round_trip_seconds",
            "From a commit going out to the first draft on it coming in, what the drafter held it included.",
            ("proposer",),
        )
        self.malformed_messages = Counter("slipstream_malformed_messages", "Messages that made no sense.", ("kind",))
        self.sequences = sequences_counter()

    def record_pass(self, tenant: str, commit: Commit, *, had_room: bool) -> None:
        """`had_room`: drafts could have been submitted."""
        proposer = commit.proposer or NO_PROPOSER
        self.passes.add(tenant, commit)
        self.wait_seconds.observe(commit.wait_us * 1e-6, tenant, proposer)
        if had_room:
            self.tree_ready.add(1, tenant, proposer)
            self.tree_hits.add(commit.hit, tenant, proposer)

    def record_step(self, report: StepReport, *, num_sequences: int, verify_seconds: float) -> None:
        self.step_seconds.observe(report.step_us * 1e-6)
        self.verify_seconds.observe(verify_seconds)
        self.step_sequences.observe(num_sequences)
        self.step_tokens.observe(report.num_tokens)
