"""What the gateway counts and times, over all requests. Knows instruments; how they are shown is not its matter."""

from __future__ import annotations

from slipstream.exchange import Commit, StepReport
from slipstream.metrics.instruments import Counter, Histogram
from slipstream.metrics.passes import NO_PROPOSER, PassTally

_TENANT = ("tenant",)
_TENANT_AND_PROPOSER = ("tenant", "proposer")


class GatewayMetrics:
    """Every attribute is an instrument; the event loop adds to all of them."""

    def __init__(self) -> None:
        self.passes = PassTally()
        self.requests = Counter("slipstream_requests", "Requests that ended, by how.", ("tenant", "outcome"))
        self.moves = Counter(
            "slipstream_moves", "Sequences that left a verifier before their end, by why.", ("tenant", "reason")
        )
        self.malformed_messages = Counter(
            "slipstream_malformed_messages", "Messages of peers that could not be read.", ("kind",)
        )
        self.tritonserver_calls = Counter(
            "slipstream_tritonserver_calls", "Times that a tritonserver was asked, by how that ended.", ("outcome",)
        )
        self.prompt_tokens = Counter("slipstream_prompt_tokens", "Prompt tokens of requests that began.", _TENANT)
        self.cached_tokens = Counter("slipstream_cached_tokens", "Of those, found in the prefix cache.", _TENANT)
        self.admission_seconds = Histogram("slipstream_admission_seconds", "Waited for a place here.", _TENANT)
        self.request_queue_seconds = Histogram(
            "slipstream_request_queue_seconds", "From receipt to the step that made the first token.", _TENANT
        )
        self.first_token_seconds = Histogram(
            "slipstream_time_to_first_token_seconds", "From receipt to the first token.", _TENANT
        )
        self.output_token_seconds = Histogram(
            "slipstream_time_per_output_token_seconds", "One request's mean over the tokens after its first.", _TENANT
        )
        self.request_seconds = Histogram("slipstream_request_seconds", "From receipt to the end.", _TENANT)
        self.draft_seconds = Histogram(
            "slipstream_draft_seconds", "Computed by a drafter for one batch of drafts.", _TENANT_AND_PROPOSER
        )
        self.wire_seconds = Histogram(
            "slipstream_wire_seconds", "From a commit out to its draft in, less what it was held.", _TENANT_AND_PROPOSER
        )
        self.verify_seconds = Histogram(
            "slipstream_verify_seconds", "The verify step of one pass.", _TENANT_AND_PROPOSER
        )
        self.wait_seconds = Histogram(
            "slipstream_wait_seconds", "From ready to the start of the pass.", _TENANT_AND_PROPOSER
        )

    def record_pass(self, tenant: str, commit: Commit, step: StepReport) -> None:
        proposer = commit.proposer or NO_PROPOSER
        self.passes.add(tenant, commit)
        self.verify_seconds.observe(step.step_us * 1e-6, tenant, proposer)
        self.wait_seconds.observe(commit.wait_us * 1e-6, tenant, proposer)

    def record_first_token(self, tenant: str, *, num_prompt: int, num_cached: int, first: float, queue: float) -> None:
        """`first` and `queue`: seconds since the request was received."""
        self.prompt_tokens.add(num_prompt, tenant)
        self.cached_tokens.add(num_cached, tenant)
        self.first_token_seconds.observe(first, tenant)
        self.request_queue_seconds.observe(queue, tenant)

    def record_draft_batch(self, tenant: str, proposer: str, *, draft_us: int, wire_us: int) -> None:
        self.draft_seconds.observe(draft_us * 1e-6, tenant, proposer)
        if wire_us:  # else it was pushed ahead of need
            self.wire_seconds.observe(wire_us * 1e-6, tenant, proposer)
