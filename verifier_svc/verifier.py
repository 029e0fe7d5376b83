"""The verifier: the one place that makes tokens final. Knows sequences, drafts and an engine; knows no network."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence

from slipstream.cache.block_pool import BlockPool
from slipstream.engine.feature_tap import FeatureTap
from slipstream.engine.model_runner import GraphSteps, ModelRunner
from slipstream.engine.scheduler import Scheduler, Share
from slipstream.exchange import (
    Commit,
    CommitBatch,
    DraftBatch,
    FeaturesWanted,
    PromptLogprobs,
    StepReport,
    TokenLogprobs,
    Update,
)
from slipstream.proposers.ngram import NAME as NGRAM
from slipstream.request import FinishReason, SequenceRequest
from slipstream.sampling.check import Verdict
from slipstream.text.tokenizer import Tokenizer
from slipstream.timeline import NO_TIMELINE, Timeline
from verifier_svc.admission import Served
from verifier_svc.feature_outbox import FeatureOutbox
from verifier_svc.guide import NAME as GRAMMAR
from verifier_svc.messages import Close, Event, GrammarCompiled, Refuse, StreamEnded, StreamOutput
from verifier_svc.metrics import VerifierMetrics
from verifier_svc.open_sequences import OpenSequences
from verifier_svc.verify_pass import Pass, take_scores
from verifier_svc.waiting import next_start

Send = Callable[[list[StreamOutput]], None]


class Verifier:
    """Takes messages in through `handle` and works in steps; an EngineThread calls both.

    A step: schedule, feed uncomputed committed tokens and drafts to the model, verify, commit, report.
    """

    def __init__(
        self,
        runner: ModelRunner,
        tokenizer: Tokenizer,
        scheduler: Scheduler,
        *,
        local_proposers: Collection[str] = (NGRAM, GRAMMAR),
        feature_tap: FeatureTap | None = None,  # the runner's
        clock: Callable[[], float] = time.monotonic,
        timeline: Timeline = NO_TIMELINE,
    ) -> None:
        self.metrics = VerifierMetrics()
        self._features = FeatureOutbox(feature_tap)
        self.pool = BlockPool(runner.kv_cache.num_blocks, runner.kv_cache.block_size)
        self.served = Served(
            tokenizer=tokenizer,
            vocab_size=runner.config.vocab_size,
            max_model_len=min(runner.max_model_len, self.pool.num_blocks * self.pool.block_size),
            eos_token_ids=tuple(runner.config.eos_token_ids),
            features=self._features.fingerprint,
        )
        self.sequences = OpenSequences(self.served, scheduler, self.pool, local_proposers, clock)
        self._runner = runner
        self._scheduler = scheduler
        self._clock = clock
        self._timeline = timeline
        self._send: Send | None = None
        self._held: list[StreamOutput] = []  # of the last step, until the next one is launched

    def handle(self, event: Event) -> None:
        """Takes in one message. An error in it ends the sequence it concerns and nothing else."""
        stream, message = event
        match message:
            case SequenceRequest():
                self.sequences.open(stream, message)
            case Update():
                self.sequences.update(stream, message)
            case Close(sequence_id):
                self.sequences.close(stream, sequence_id)
            case DraftBatch(drafts):
                for draft in drafts:
                    if (refusal := self.sequences.insert(stream, draft)) is not None:
                        self.metrics.dropped_drafts.add(1, refusal)
            case FeaturesWanted():
                self.sequences.tell_features(stream, message)
            case Refuse(failure):
                self.sequences.refuse(stream, failure)
            case GrammarCompiled(sequence_id):
                self.sequences.open_compiled(stream, sequence_id)
            case StreamEnded():
                self.sequences.end_stream(stream)

    def compile_apart(self, post: Callable[[Event], None]) -> None:
        """From now on nothing waits for a grammar but the sequence that asks for it; `post` takes what ends that."""
        self.sequences.openings.post = post

    def send_during_steps(self, send: Send) -> None:
        """From now on what a step has to say waits until the next one is launched, if one can start at once.

        For engines that compute beside the interpreter: the event loop, which an output wakes, would otherwise take the
        interpreter from the thread that a GPU is waiting for.
        """
        self._send = send

    def next_wake(self) -> float | None:
        if self._held:
            return self._clock()
        wake = min(next_start(self.sequences.all), self.sequences.next_deadline)
        return None if wake == math.inf else wake

    def step(self) -> list[StreamOutput] | None:
        started = self._clock()
        self.sequences.expire(started)
        self._note_hits()
        if started < next_start(self.sequences.all):
            self._send_held()
            return self._outputs({}, {}, StepReport())
        with self._timeline.span("schedule", "schedule"):
            passes = [self._start_pass(share, started) for share in self._scheduler.schedule()]
        scheduled = self._clock()
        tell_scores = self._score(passes)
        finish = self._launch(passes)
        self._send_held()
        verdicts = finish()
        verify_seconds = self._clock() - scheduled
        with self._timeline.span("schedule", "commit"):
            scores = take_scores(passes, tell_scores())
            commits = self._commit(passes, verdicts)
        report = self._report(passes, started)
        self.metrics.record_step(report, num_sequences=len(passes), verify_seconds=verify_seconds)
        outputs = self._outputs(commits, scores, report)
        if self._send is None:
            return outputs
        self._held = outputs or []
        return None

    def _send_held(self) -> None:
        held, self._held = self._held, []
        if held and self._send is not None:
            self._send(held)

    @property
    def graph_steps(self) -> GraphSteps:
        return self._runner.graph_steps

    @property
    def num_running(self) -> int:
        return len(self._scheduler.running)

    @property
    def num_waiting(self) -> int:
        return self._scheduler.num_waiting

    def _note_hits(self) -> None:
        for active in self.sequences.all:
            if active.hit is None:
                active.hit = active.has_drafts

    def _start_pass(self, share: Share, now: float) -> Pass:
        active = self.sequences.of(share.sequence)
        if not active.started:
            self.metrics.queue_seconds.observe(now - active.ready_at, active.request.tenant)
        return Pass(active, share, active.start_pass(share, now), active.scored_chunk(share))

    def _score(self, passes: Sequence[Pass]) -> Callable[[], list[TokenLogprobs]]:
        """Feeds what is to be scored, in a pass of its own before the others': one answer for each such chunk."""
        scored = [one.scored for one in passes if one.scored is not None]
        return self._runner.score(scored) if scored else list

    def _launch(self, passes: Sequence[Pass]) -> Callable[[], list[Verdict]]:
        """One verdict for each pass that completes, in their order, once it is called."""
        chunks = [chunk for one in passes if (chunk := one.chunk).token_ids]
        checks = [one.active.check(one.path) for one in passes if one.share.completes]
        return self._runner.launch(chunks, checks) if chunks else list

    def _commit(self, passes: Sequence[Pass], verdicts: Iterable[Verdict]) -> dict[int, list[Commit]]:
        """Makes tokens final, by stream. Nothing else does."""
        commits: dict[int, list[Commit]] = defaultdict(list)
        remaining = iter(verdicts)
        now = self._clock()
        for one in passes:
            one.active.engine.note_computed(one.share.num_tokens)
            one.active.ready_at = now
            if one.share.completes:
                commits[one.active.stream] += self._commit_pass(one, next(remaining))
        return commits

    def _commit_pass(self, one: Pass, verdict: Verdict) -> list[Commit]:
        """The sequence's commit; none if its own rules left no token to commit."""
        active = one.active
        active.note_pass(one.share, one.path, verdict.num_accepted, active.ready_at)
        taken = active.stop.take(verdict.token_ids)
        added_one = taken.num_tokens > verdict.num_accepted
        if added_one and not active.may_go_on(verdict.token_ids):
            self.sequences.end_without_tokens(active, verdict.num_accepted)
            return []
        commit = Commit(
            sequence_id=active.request.sequence_id,
            base=active.engine.num_tokens,
            token_ids=tuple(verdict.token_ids[: taken.num_tokens]),
            num_accepted=min(verdict.num_accepted, taken.num_tokens),
            num_draft_tokens=len(one.path.tokens),
            proposer=one.path.proposer,
            finish_reason=taken.finish_reason,
            stop_string=taken.stop_string,
            hit=bool(active.hit),
            wait_us=round(active.waited * 1e6),
            num_cached_tokens=active.num_cached_prompt_tokens if active.num_commits == 0 else 0,
            logprobs=None if verdict.logprobs is None else verdict.logprobs[: taken.num_tokens],
        )
        active.commit(commit.token_ids, commit.num_accepted)
        if commit.finish_reason is not FinishReason.NONE:
            self.sequences.forget(active)
        self.metrics.record_pass(active.request.tenant, commit, had_room=one.share.num_draft_tokens > 0)
        return [commit]

    def _report(self, passes: Sequence[Pass], started: float) -> StepReport:
        return StepReport(
            num_running=self.num_running,
            num_waiting=self.num_waiting,
            num_tokens=sum(one.num_tokens for one in passes),
            step_us=round((self._clock() - started) * 1e6),
            kv_blocks_used=self.pool.num_used,
            kv_blocks_total=self.pool.num_blocks,
        )

    def _outputs(
        self, commits: dict[int, list[Commit]], scores: dict[int, list[PromptLogprobs]], report: StepReport
    ) -> list[StreamOutput] | None:
        """All that each stream is to hear of this step, in one piece."""
        failures = defaultdict(list)
        for stream, failure in self.sequences.take_failures():
            failures[stream].append(failure)
        features = self._features.take(self.sequences.all)
        outputs = [
            StreamOutput(
                stream,
                CommitBatch(tuple(commits.get(stream, ())), report, tuple(scores.get(stream, ()))),
                tuple(failures[stream]),
                tuple(features.get(stream, ())),
            )
            for stream in sorted({*commits, *scores, *failures, *features})
        ]
        return outputs or None
