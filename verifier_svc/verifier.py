"""The verifier: the one place that makes tokens final. Knows sequences, drafts and an engine; knows no network."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Sequence

from slipstream.cache.block_pool import BlockPool
from slipstream.engine.feature_tap import FeatureTap
from slipstream.engine.model_runner import GraphSteps, ModelRunner
from slipstream.engine.scheduler import Scheduler, Share
from slipstream.exchange import DraftBatch, FeaturesWanted, StepReport, TokenLogprobs, Update
from slipstream.proposers.ngram import NAME as NGRAM
from slipstream.request import FinishReason, SequenceRequest
from slipstream.sampling.check import Verdict
from slipstream.text.tokenizer import Tokenizer
from slipstream.timeline import NO_TIMELINE, Timeline
from verifier_svc.admission import Served
from verifier_svc.beside import TakeCommits
from verifier_svc.feature_outbox import FeatureOutbox
from verifier_svc.guide import NAME as GRAMMAR
from verifier_svc.held_outputs import HeldOutputs
from verifier_svc.lookahead import Ahead, Lookahead, Running
from verifier_svc.meanwhile import HANDS_OFF_SECONDS, Send, TakeIn, take_in_nothing, undisturbed
from verifier_svc.messages import Close, Event, GrammarCompiled, Refuse, StreamEnded, StreamOutput
from verifier_svc.metrics import VerifierMetrics
from verifier_svc.open_sequences import OpenSequences
from verifier_svc.outcome import PassOutcome, StepOutcome, StepWork, outputs_of
from verifier_svc.verify_pass import Pass, take_scores
from verifier_svc.waiting import next_start


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
        launches_ahead: bool = True,  # while a step runs, where it can; off changes nothing but speed
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
        self._held = HeldOutputs(self._outputs)
        self._take_in: TakeIn = take_in_nothing
        self._lookahead = Lookahead(runner, scheduler, timeline) if launches_ahead and runner.can_follow else None
        self._ahead: Running | None = None  # launched behind the last step

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
                self.sequences.resend_features(stream, message)
            case Refuse(failure):
                self.sequences.refuse(stream, failure)
            case GrammarCompiled(sequence_id):
                self.sequences.open_compiled(stream, sequence_id)
            case StreamEnded():
                self.sequences.end_stream(stream)

    def compile_apart(self, post: Callable[[Event], None]) -> None:
        """From now on nothing waits for a grammar but the sequence that asks for it; `post` takes what ends that."""
        self.sequences.openings.post = post

    def work_during_steps(self, send: Send, take_in: TakeIn) -> None:
        """From now on the outputs of a step wait until the next one is launched, if one can start at once.

        For engines that compute beside the interpreter. The event loop, which an output wakes, would otherwise take the
        interpreter from the thread that a GPU is waiting for; and drafts that come during a step, which `take_in` hands
        to this verifier until a given time, would have to be taken in when it is over.
        """
        self._held.send, self._take_in = send, take_in

    def hand_over_commits(self, take_commits: TakeCommits) -> None:
        """From now on a drafter in this process hears of commits before anyone else.

        Before it is waited for, if the next step waits for its drafts; else when that is launched, for what the drafter
        then does would take the interpreter from this thread.
        """
        self._held.hand_over = take_commits

    def next_wake(self) -> float | None:
        if self._ahead is not None or self._held.is_due:
            return self._clock()
        wake = min(next_start(self.sequences.all), self.sequences.next_deadline)
        return None if wake == math.inf else wake

    def step(self) -> list[StreamOutput] | None:
        started = self._clock()
        self.sequences.expire(started)
        if self._ahead is None and started < next_start(self.sequences.all):
            self._note_hits()
            self._held.tell_drafter(waits=len(self.sequences.all) > 0)
            if self._held.waits_with(self.sequences.all):
                return None
            self._held.tell()
            return self._outputs(StepOutcome(features=self._features.take(self.sequences.all)))
        running, self._ahead = self._ahead or self._start(started), None
        launched = self._clock()
        self._held.tell()
        ahead = self._launch_ahead(running.passes)
        verdicts = running.finish()
        verify_seconds = self._clock() - launched
        with self._timeline.span("schedule", "commit"):
            scores = take_scores(running.passes, running.read_scores())
            settled = self._settle(running.passes, verdicts)
            self._held.note_settled(settled)
            if self._held.send is None and next_start(self.sequences.all) <= self._clock():
                self._held.tell_drafter(waits=False)  # else before the next step, or once it is launched
            outcome = StepOutcome(settled, scores, self._features.take(self.sequences.all))
        if ahead is not None:
            self._ahead = ahead.after(running.passes, verdicts, self._clock())
        outcome.work = StepWork(running.passes, self._clock() - started, verify_seconds)
        return self._held.keep(outcome)

    def _start(self, now: float) -> Running:
        """Schedules and launches a step."""
        with self._timeline.span("schedule", "schedule"):
            passes = [self._start_pass(share, now) for share in self._scheduler.schedule()]
        read_scores = self._score(passes)
        return Running(passes, self._launch(passes), read_scores)

    def _launch_ahead(self, passes: Sequence[Pass]) -> Ahead | None:
        """Takes drafts in until the step's end is near; then the next one may be launched."""
        end = self._runner.expected_end - HANDS_OFF_SECONDS
        if self._lookahead is None or self._held.send is None:
            undisturbed(self._take_in, end)
            return None
        return self._lookahead.launch_late(passes, self._take_in, end)

    def _outputs(self, outcome: StepOutcome) -> list[StreamOutput] | None:
        work = outcome.work
        if work is not None:
            outcome.report = self._report(work)
            count = len(work.passes)
            self.metrics.record_step(outcome.report, num_sequences=count, verify_seconds=work.verify_seconds)
            if work.has_decoded:
                self._scheduler.pace.note(work.num_prompt_tokens, work.seconds)
        return outputs_of(outcome, self.sequences.take_failures(), self.metrics)

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
            active.note_hit()

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

    def _settle(self, passes: Sequence[Pass], verdicts: Iterable[Verdict]) -> list[PassOutcome]:
        """Makes tokens final. Nothing else does."""
        settled: list[PassOutcome] = []
        remaining = iter(verdicts)
        now = self._clock()
        for one in passes:
            verdict = next(remaining) if one.share.completes else None
            if not one.active.is_open:
                continue  # it ended after this step was launched
            one.active.engine.note_computed(one.share.num_tokens)
            one.active.ready_at = now
            if verdict is not None:
                settled += self._settle_pass(one, verdict)
        return settled

    def _settle_pass(self, one: Pass, verdict: Verdict) -> list[PassOutcome]:
        """What the sequence commits; empty if its own rules left no token, which ends it."""
        active, token_ids, num_accepted = one.active, verdict.token_ids, verdict.num_accepted
        active.note_pass(one.share, one.path, num_accepted, active.ready_at)
        taken = active.stop.take(token_ids)
        num_tokens = taken.num_tokens
        if num_tokens > num_accepted and not active.may_go_on(token_ids):
            self.sequences.end_without_tokens(active, num_accepted)
            return []
        base, hit, waited, is_first = active.engine.num_tokens, bool(active.hit), active.waited, active.num_commits == 0
        active.commit(token_ids[:num_tokens], min(num_accepted, num_tokens))
        if taken.finish_reason is not FinishReason.NONE:
            self.sequences.forget(active)
        return [PassOutcome(one, verdict, taken, base, hit, waited, is_first)]

    def _report(self, work: StepWork) -> StepReport:
        return StepReport(
            num_running=self.num_running,
            num_waiting=self.num_waiting,
            num_tokens=sum(one.num_tokens for one in work.passes),
            step_us=round(work.seconds * 1e6),
            kv_blocks_used=self.pool.num_used,
            kv_blocks_total=self.pool.num_blocks,
        )
