"""What a step has made final, and the outputs that say so. Knows passes that are over; decides nothing.

Outputs are made apart from settling because a GPU need not wait for them: the next step starts from what is settled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slipstream.exchange import Commit, CommitBatch, Features, PromptLogprobs, SequenceFailure, StepReport
from slipstream.sampling.check import Verdict
from verifier_svc.messages import StreamOutput
from verifier_svc.metrics import VerifierMetrics
from verifier_svc.stopping import Taken
from verifier_svc.verify_pass import Pass


@dataclass(slots=True)
class PassOutcome:
    """One sequence's, as it was when its tokens became final."""

    ran: Pass
    verdict: Verdict
    taken: Taken
    base: int
    hit: bool
    waited: float
    is_first: bool
    made: Commit | None = None  # once somebody asked for it

    def commit(self) -> Commit:
        if self.made is None:
            self.made = self._commit()
        return self.made

    def _commit(self) -> Commit:
        verdict, taken, path, active = self.verdict, self.taken, self.ran.path, self.ran.active
        num_tokens = taken.num_tokens
        return Commit(
            sequence_id=active.request.sequence_id,
            base=self.base,
            token_ids=verdict.token_ids[:num_tokens],
            num_accepted=min(verdict.num_accepted, num_tokens),
            num_draft_tokens=len(path.tokens),
            proposer=path.proposer,
            finish_reason=taken.finish_reason,
            stop_string=taken.stop_string,
            hit=self.hit,
            wait_us=round(self.waited * 1e6),
            num_cached_tokens=active.num_cached_prompt_tokens if self.is_first else 0,
            logprobs=None if verdict.logprobs is None else verdict.logprobs[:num_tokens],
        )


@dataclass(slots=True)
class StepWork:
    """What a step computed and how long it took."""

    passes: Sequence[Pass]
    seconds: float
    verify_seconds: float

    @property
    def has_decoded(self) -> bool:
        return any(one.share.num_tokens == 1 for one in self.passes)

    @property
    def num_prompt_tokens(self) -> int:
        return sum(one.share.num_tokens for one in self.passes if one.share.num_tokens > 1)


@dataclass(slots=True)
class StepOutcome:
    passes: Sequence[PassOutcome] = ()  # those that committed
    scores: Mapping[int, Sequence[PromptLogprobs]] = field(default_factory=dict)  # by stream
    features: Mapping[int, Sequence[Features]] = field(default_factory=dict)  # by stream
    report: StepReport = field(default_factory=StepReport)
    work: StepWork | None = None  # None: nothing was computed


def outputs_of(
    outcome: StepOutcome, failures: Sequence[tuple[int, SequenceFailure]], metrics: VerifierMetrics
) -> list[StreamOutput] | None:
    """One output for each stream that the step concerns, None if there is none; counts the passes as well."""
    commits: dict[int, list[Commit]] = defaultdict(list)
    for settled in outcome.passes:
        active, commit = settled.ran.active, settled.commit()
        commits[active.stream].append(commit)
        metrics.record_pass(active.request.tenant, commit, had_room=settled.ran.share.num_draft_tokens > 0)
    failed: dict[int, list[SequenceFailure]] = defaultdict(list)
    for stream, failure in failures:
        failed[stream].append(failure)
    scores, features = outcome.scores, outcome.features
    outputs = [
        StreamOutput(
            stream,
            CommitBatch(tuple(commits.get(stream, ())), outcome.report, tuple(scores.get(stream, ()))),
            tuple(failed.get(stream, ())),
            tuple(features.get(stream, ())),
        )
        for stream in sorted({*commits, *scores, *failed, *features})
    ]
    return outputs or None
