"""The open sequences of all streams, and what failed of them. Knows how they come and go; computes nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection

from slipstream.cache.block_pool import BlockPool
from slipstream.engine.scheduler import Scheduler
from slipstream.engine.sequence import EngineSequence
from slipstream.errors import DeadlineExceeded, InvalidRequest
from slipstream.exchange import Draft, FeaturesWanted, SequenceFailure, Update
from slipstream.grammar.compiled import CompiledGrammars
from slipstream.grammar.compiler import GrammarCompiler
from slipstream.request import SequenceRequest
from verifier_svc.active_sequence import ActiveSequence
from verifier_svc.admission import Served, validate
from verifier_svc.draft_check import Refusal
from verifier_svc.guide import Guide
from verifier_svc.local_drafts import LocalDrafts
from verifier_svc.openings import Openings
from verifier_svc.stopping import StopRule


class OpenSequences:
    """Keyed by (stream, sequence id). An error ends the sequence it concerns and is kept for `take_failures`."""

    def __init__(
        self,
        served: Served,
        scheduler: Scheduler,
        pool: BlockPool,
        local_proposers: Collection[str],
        clock: Callable[[], float],
    ) -> None:
        self._served = served
        self._scheduler = scheduler
        self._pool = pool
        self._local_proposers = local_proposers
        self._clock = clock
        self._by_key: dict[tuple[int, int], ActiveSequence] = {}
        self._by_engine: dict[EngineSequence, ActiveSequence] = {}
        self._failures: list[tuple[int, SequenceFailure]] = []
        compiler = GrammarCompiler(served.tokenizer, served.vocab_size, served.eos_token_ids)
        self.openings = Openings(CompiledGrammars(compiler.compile))

    def __len__(self) -> int:
        """Those too that wait for their grammar."""
        return len(self._by_key) + len(self.openings)

    @property
    def next_deadline(self) -> float:
        """When `expire` may have something to end."""
        running = min((active.deadline for active in self.all), default=math.inf)
        return min(running, self.openings.next_end)

    @property
    def all(self) -> Collection[ActiveSequence]:
        return self._by_key.values()

    def of(self, engine: EngineSequence) -> ActiveSequence:
        return self._by_engine[engine]

    def open(self, stream: int, request: SequenceRequest) -> None:
        try:
            self._refuse_duplicate(stream, request.sequence_id)
            validate(request, self._served)
            grammar = request.sampling.grammar
            if grammar is None:
                self._admit(stream, request, self._clock())
            else:
                self.openings.add(stream, request, grammar, self._clock())
                self.open_compiled(stream, request.sequence_id)
        except Exception as error:  # whatever it is, it is this sequence's alone
            self._fail(stream, request.sequence_id, error)

    def open_compiled(self, stream: int, sequence_id: int) -> None:
        """Opens a sequence whose grammar is compiled, unless it was closed meanwhile or its grammar is refused."""
        opening = self.openings.take_compiled(stream, sequence_id)
        if opening is None:
            return
        try:
            guide = Guide(opening.compiled.result(), opening.request, self._served.tokenizer)
            self._admit(stream, opening.request, opening.opened_at, guide)
        except Exception as error:  # as in `open`
            self._fail(stream, sequence_id, error)

    def update(self, stream: int, update: Update) -> None:
        """New bounds; the sequence may have finished while they were on their way."""
        self.openings.update(stream, update)
        active = self._by_key.get((stream, update.sequence_id))
        if active is not None:
            active.update(update)

    def insert(self, stream: int, draft: Draft) -> Refusal | None:
        active = self._by_key.get((stream, draft.sequence_id))
        return Refusal.UNKNOWN_SEQUENCE if active is None else active.insert(draft, self._served.vocab_size)

    def resend_features(self, stream: int, wanted: FeaturesWanted) -> None:
        """All from a position on are sent again."""
        active = self._by_key.get((stream, wanted.sequence_id))
        if active is not None and active.num_sent_features is not None:
            active.num_sent_features = min(active.num_sent_features, wanted.start)

    def close(self, stream: int, sequence_id: int) -> None:
        """Forgets a sequence; it may have finished while the message was on its way."""
        self.openings.take(stream, sequence_id)
        active = self._by_key.get((stream, sequence_id))
        if active is not None:
            self.forget(active)

    def refuse(self, stream: int, failure: SequenceFailure) -> None:
        self.close(stream, failure.sequence_id)
        self._failures.append((stream, failure))

    def end_stream(self, stream: int) -> None:
        for active in [active for active in self.all if active.stream == stream]:
            self.forget(active)
        self.openings.end_stream(stream)
        self._failures = [failure for failure in self._failures if failure[0] != stream]

    def expire(self, now: float) -> None:
        """Ends what is past its deadline, waiting or running, and what takes too much of everyone's time."""
        for opening in self.openings.take_late(now):
            self._fail(opening.stream, opening.request.sequence_id, opening.lateness)
        for active in [active for active in self.all if active.deadline <= now]:
            self.forget(active)
            text = f"the deadline of {active.request.deadline_ms} ms passed at {active.engine.num_tokens} tokens"
            self._fail(active.stream, active.request.sequence_id, DeadlineExceeded(text))
        for active in [active for active in self.all if active.grammar_is_too_slow]:
            self.forget(active)
            text = f"grammar is too slow after {active.engine.num_tokens} tokens, for it is ambiguous; make it simpler"
            self._fail(active.stream, active.request.sequence_id, InvalidRequest(text))

    def end_without_tokens(self, active: ActiveSequence, num_accepted: int) -> None:
        """Ends what may not go on: after so many accepted draft tokens its own rules forbid every token."""
        self.forget(active)
        text = (
            f"no token is allowed at position {active.engine.num_tokens + num_accepted}: allowed_token_ids, bad_words, "
            "min_tokens and grammar together forbid all of them; loosen one"
        )
        self._fail(active.stream, active.request.sequence_id, InvalidRequest(text))

    def forget(self, active: ActiveSequence) -> None:
        """Frees everything that a sequence held."""
        active.is_open = False
        self._scheduler.remove(active.engine)
        del self._by_key[active.key], self._by_engine[active.engine]

    def take_failures(self) -> list[tuple[int, SequenceFailure]]:
        taken, self._failures = self._failures, []
        return taken

    def _refuse_duplicate(self, stream: int, sequence_id: int) -> None:
        if (stream, sequence_id) in self._by_key or (stream, sequence_id) in self.openings:
            self.close(stream, sequence_id)  # the error ends the id for the gateway, so nothing may live on under it
            raise InvalidRequest(f"sequence {sequence_id} is open already and now ended; open each one under a new id")

    def _admit(self, stream: int, request: SequenceRequest, opened_at: float, guide: Guide | None = None) -> None:
        served, max_len = self._served, self._served.max_len(request)
        with_features = served.makes_features_for(request)
        engine = EngineSequence(
            self._pool,
            request.token_ids,
            tenant=f"{request.tenant}\0features" if with_features else request.tenant,  # blocks without are no use
            max_len=max_len,
            num_draft_tokens=request.num_draft_tokens,
            reads_cache=not request.sampling.prompt_logprobs,
        )
        stop = StopRule(request, eos_token_ids=served.eos_token_ids, max_len=max_len, tokenizer=served.tokenizer)
        local = LocalDrafts(request, self._local_proposers, guide)
        active = ActiveSequence(stream, request, engine, stop, local=local, opened_at=opened_at)
        active.num_sent_features = 0 if with_features else None
        self._scheduler.add(engine)
        self._by_key[active.key] = self._by_engine[engine] = active

    def _fail(self, stream: int, sequence_id: int, error: Exception) -> None:
        self._failures.append((stream, SequenceFailure(sequence_id, error)))
