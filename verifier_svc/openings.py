"""Requests that wait for their grammar to be compiled. Knows when they give up; knows nothing of what runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace

from slipstream.errors import DeadlineExceeded, InvalidRequest
from slipstream.exchange import Update
from slipstream.grammar.compiled import CompiledGrammars
from slipstream.grammar.compiler import CompiledGrammar
from slipstream.request import Grammar, SequenceRequest
from verifier_svc.messages import Event, GrammarCompiled

COMPILE_SECONDS = 30.0  # loading the library is in it, for the first


@dataclass(slots=True)
class Opening:
    stream: int
    request: SequenceRequest
    compiled: Future[CompiledGrammar]
    opened_at: float

    @property
    def ends_at(self) -> float:
        allowed = self.request.deadline_ms * 1e-3 or math.inf
        return self.opened_at + min(allowed, COMPILE_SECONDS)

    @property
    def lateness(self) -> Exception:
        """Why it ends unserved at `ends_at`."""
        if self.ends_at < self.opened_at + COMPILE_SECONDS:
            return DeadlineExceeded(f"the deadline of {self.request.deadline_ms} ms passed while the grammar compiled")
        return InvalidRequest(f"grammar took more than {COMPILE_SECONDS:.0f} s to compile; make it simpler")


class Openings:
    """Keyed like sequences, by (stream, sequence id)."""

    def __init__(self, grammars: CompiledGrammars[CompiledGrammar]) -> None:
        self.post: Callable[[Event], None] | None = None  # where compilations are reported; None: each is waited for
        self._grammars = grammars
        self._by_key: dict[tuple[int, int], Opening] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, key: tuple[int, int]) -> bool:
        return key in self._by_key

    @property
    def next_end(self) -> float:
        return min((one.ends_at for one in self._by_key.values()), default=math.inf)

    def add(self, stream: int, request: SequenceRequest, grammar: Grammar, now: float) -> None:
        """Has the grammar compiled. Exhausted if too many are."""
        compiled, post = self._grammars.get(grammar), self.post
        self._by_key[stream, request.sequence_id] = Opening(stream, request, compiled, now)
        if post is None:
            wait((compiled,), COMPILE_SECONDS)
        elif not compiled.done():
            event = (stream, GrammarCompiled(request.sequence_id))
            compiled.add_done_callback(lambda _: post(event))

    def take_compiled(self, stream: int, sequence_id: int) -> Opening | None:
        """The opening, which is none any more, if its compilation has ended."""
        opening = self._by_key.get((stream, sequence_id))
        return self.take(stream, sequence_id) if opening is not None and opening.compiled.done() else None

    def take(self, stream: int, sequence_id: int) -> Opening | None:
        return self._by_key.pop((stream, sequence_id), None)

    def take_late(self, now: float) -> list[Opening]:
        late = [key for key, one in self._by_key.items() if one.ends_at <= now]
        return [self._by_key.pop(key) for key in late]

    def update(self, stream: int, update: Update) -> None:
        """New bounds, for when it opens."""
        opening = self._by_key.get((stream, update.sequence_id))
        if opening is not None:
            opening.request = replace(
                opening.request, num_draft_tokens=update.num_draft_tokens, max_wait_us=update.max_wait_us
            )

    def end_stream(self, stream: int) -> None:
        for key in [key for key in self._by_key if key[0] == stream]:
            del self._by_key[key]
