"""A verifier, a drafter and streams of requests as a discrete-event simulation, step by step, for the gateway's
controller to steer. Knows calibrated times and acceptance; runs no model.

What is real here: the controller, steering and all they are made of. What is simulated: how long steps take (a curve
through measured points), whether drafts are there in time, and how many of them stand (drawn token by token).
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from gateway.control.controllers import Controllers
from gateway.control.drafting import Drafting
from gateway.control.evidence import Trial
from gateway.control.steering import Steering
from gateway.policy.tenants import DRAFT_MODEL, Tenant, Tenants
from slipstream.exchange import Commit, StepReport
from slipstream.proposers.ngram import NAME as NGRAM
from slipstream.request import SamplingParams, SequenceRequest

VERIFIER: Final = "verifier:1"
SCORED_TOKENS: Final = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """Measured times, in seconds."""

    name: str
    verify: tuple[tuple[float, float], ...]  # tokens of a step, its time
    draft_token: float  # one draft step
    draft_rows: int  # rows that cost as much as one
    round_trip: float
    overlaps: bool  # drafter and verifier compute at one time

    def verify_seconds(self, num_tokens: float) -> float:
        at = bisect_left(self.verify, (num_tokens, 0.0))
        right = min(max(at, 1), len(self.verify) - 1)
        (x0, y0), (x1, y1) = self.verify[right - 1], self.verify[right]
        return y0 + (y1 - y0) * (num_tokens - x0) / (x1 - x0)

    def draft_seconds(self, num_draft_tokens: int, rows: int) -> float:
        return num_draft_tokens * self.draft_token * max(1.0, rows / self.draft_rows)


@dataclass(frozen=True, kw_only=True, slots=True)
class TextKind:
    """How one kind of request lets itself be drafted."""

    name: str
    temperature: float
    model: float  # share of a model's draft tokens that stand, those before it given
    guessed: float  # share of passes whose outcome a drafter that runs ahead had drafted for
    long_match: float  # share of passes with a long n-gram match, and of its tokens that stand
    long_right: float
    short_match: float
    short_right: float


@dataclass(slots=True)
class Stream:
    """Requests of one client, one after the other."""

    kind: TextKind
    steering: Steering
    left: int  # tokens of its request
    drafting: Drafting | None = None


@dataclass(slots=True)
class Simulation:
    """All streams of one run; `policy` is every tenant's."""

    machine: Machine
    policy: Tenant
    kinds: Sequence[TextKind]
    num_streams: int
    tokens_per_request: int = 200
    seed: int = 0
    seconds: float = 0.0
    tokens: int = 0
    controllers: Controllers = field(init=False)
    streams: list[Stream] = field(init=False)

    _random: random.Random = field(init=False)
    _ids: Callable[[], int] = field(init=False)
    _num_requests: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.controllers = Controllers(Tenants([self.policy]), lambda: (DRAFT_MODEL,))
        self._random = random.Random(self.seed)
        self._ids = count(1).__next__
        self.streams = [self._begin() for _ in range(self.num_streams)]

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds

    def run(self, seconds: float) -> None:
        """So much simulated time."""
        end = self.seconds + seconds
        while self.seconds < end:
            self.step()

    def step(self) -> None:
        """One verify step in which every stream has a pass."""
        rows = sum(1 + (stream.drafting.fan_out if stream.drafting else 0) for stream in self.streams)
        passes = [self._pass(stream, rows) for stream in self.streams]
        num_tokens = sum(1 + commit.num_draft_tokens for commit, _ in passes)
        verify = self.machine.verify_seconds(num_tokens)
        waited = max(wait for _, wait in passes) if self.num_streams == 1 else 0.0
        self.seconds += verify + waited
        report = StepReport(num_running=self.num_streams, num_tokens=num_tokens, step_us=round(verify * 1e6))
        for index, (commit, _) in enumerate(passes):
            self._publish(index, commit, report)

    def _pass(self, stream: Stream, rows: int) -> tuple[Commit, float]:
        """The commit, and what a lone sequence waited for its drafts."""
        drafting, kind = stream.drafting, stream.kind
        assert drafting is not None
        stream.steering.note_trial(self._trial(kind))
        for name in drafting.way:
            if name == NGRAM:
                if right := self._ngram_right(kind, is_alone=len(drafting.way) == 1):
                    return self._commit(NGRAM, drafting.num_draft_tokens, right, hit=True), 0.0
            else:
                return self._model_pass(stream, drafting, rows)
        return self._commit("", 0, 0.0, hit=False), 0.0

    def _model_pass(self, stream: Stream, drafting: Drafting, rows: int) -> tuple[Commit, float]:
        machine, k = self.machine, drafting.num_draft_tokens
        lag = machine.draft_seconds(k, rows) + machine.round_trip
        pass_seconds = machine.verify_seconds(self.num_streams * (1 + k))
        in_time = min(1.0, pass_seconds / lag) if machine.overlaps else 0.0
        hit = drafting.fan_out > 0 and self._random.random() < stream.kind.guessed * in_time
        is_lone = self.num_streams == 1
        wire = 0.0 if hit else machine.round_trip
        stream.steering.note_drafts(
            DRAFT_MODEL, draft_us=round(machine.draft_seconds(k, rows) * 1e6), wire_us=round(wire * 1e6)
        )
        if not hit and not is_lone:
            return self._commit("", 0, 0.0, hit=False), 0.0
        wait = 0.0 if hit else lag
        return self._commit(DRAFT_MODEL, k, stream.kind.model, hit=hit, wait=wait), wait

    def _commit(self, proposer: str, num_draft_tokens: int, right: float, *, hit: bool, wait: float = 0.0) -> Commit:
        accepted = self._accepted(num_draft_tokens, right)
        return Commit(
            sequence_id=1,
            base=0,
            token_ids=(0,) * (accepted + 1),
            num_accepted=accepted,
            num_draft_tokens=num_draft_tokens,
            proposer=proposer,
            hit=hit,
            wait_us=round(wait * 1e6),
        )

    def _publish(self, index: int, commit: Commit, report: StepReport) -> None:
        stream = self.streams[index]
        self.tokens += len(commit.token_ids)
        stream.left -= len(commit.token_ids)
        if stream.left > 0:
            stream.steering.note_commit(commit, report)
        else:
            stream.steering.close()
            self.streams[index] = self._begin()

    def _begin(self) -> Stream:
        kind = self.kinds[self._num_requests % len(self.kinds)]
        self._num_requests += 1
        request = SequenceRequest(
            sequence_id=self._ids(),
            token_ids=(1,),
            num_prompt_tokens=1,
            sampling=SamplingParams(temperature=kind.temperature),
            proposers=self.policy.active_proposers,
            tenant=self.policy.name,
        )
        drafting: dict[str, Stream] = {}
        steering = self.controllers.steering(request, lambda new: setattr(drafting["of"], "drafting", new))
        drafting["of"] = Stream(kind, steering, self.tokens_per_request)
        drafting["of"].drafting = steering.open(VERIFIER)
        return drafting["of"]

    def _ngram_right(self, kind: TextKind, *, is_alone: bool) -> float:
        """How often its tokens stand, if it has a match that counts."""
        found = self._random.random()
        if found < kind.long_match:
            return kind.long_right
        return kind.short_right if is_alone and found < kind.long_match + kind.short_match else 0.0

    def _trial(self, kind: TextKind) -> Trial:
        found = self._random.random()
        if found < kind.long_match:
            return Trial(SCORED_TOKENS, self._accepted(SCORED_TOKENS, kind.long_right), is_long=True)
        if found < kind.long_match + kind.short_match:
            return Trial(SCORED_TOKENS, self._accepted(SCORED_TOKENS, kind.short_right), is_long=False)
        return Trial(0, 0, is_long=False)

    def _accepted(self, num_draft_tokens: int, right: float) -> int:
        accepted = 0
        while accepted < num_draft_tokens and self._random.random() < right:
            accepted += 1
        return accepted


# Verify: the runner's own steps and host gaps, 8B shape, docs/performance.md; draft step: a 135M model launched from
# a graph; the rest: loopback. CPU: two threads, SmolLM2 and its draft LM, in turns.
MACHINES: Final[Mapping[str, Machine]] = {
    machine.name: machine
    for machine in (
        Machine(
            name="gpu-8b",
            verify=((1, 4.7e-3), (5, 4.8e-3), (32, 7.2e-3), (160, 9.1e-3), (512, 17e-3), (2048, 51e-3)),
            draft_token=0.5e-3,
            draft_rows=64,
            round_trip=0.4e-3,
            overlaps=True,
        ),
        Machine(
            name="cpu-135m",
            verify=((1, 20e-3), (5, 22e-3), (8, 32e-3), (40, 110e-3), (320, 800e-3)),
            draft_token=4e-3,
            draft_rows=4,
            round_trip=2.5e-3,
            overlaps=False,
        ),
    )
}

KINDS: Final[Mapping[str, TextKind]] = {
    kind.name: kind
    for kind in (
        TextKind(
            name="chat", temperature=0.0, model=0.68, guessed=0.7,
            long_match=0.05, long_right=0.6, short_match=0.25, short_right=0.25,
        ),
        TextKind(
            name="copying", temperature=0.0, model=0.8, guessed=0.8,
            long_match=0.75, long_right=0.9, short_match=0.15, short_right=0.5,
        ),
        TextKind(
            name="hot", temperature=1.5, model=0.15, guessed=0.3,
            long_match=0.005, long_right=0.2, short_match=0.1, short_right=0.03,
        ),
    )
}  # fmt: skip
