"""A verifier, a drafter and streams of requests as a discrete-event simulation, step by step, for the gateway's
controller to steer. Knows calibrated times and acceptance; runs no model.

What is real here: the controller, steering and all they are made of. What is simulated: how long steps take (a curve
through measured points), whether drafts are there in time, and how many of them stand (drawn token by token).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from bench.controller_machines import Machine, TextKind
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


@dataclass(slots=True)
class Stream:
    """Requests of one client, one after the other."""

    kind: TextKind
    steering: Steering
    left: int  # tokens of its request
    drafting: Drafting | None = None
    is_new: bool = True  # its prompt is still to be fed
    is_open: bool = False  # at the drafter
    length: int = 0  # tokens that a drafter would have to read to open it
    ngram_right: float = 0.0  # how often tokens of its n-grams stand in this pass; 0: they have none
    ahead: int = 0  # tokens that the verifier has of a model's path, drafted while it computed


@dataclass(slots=True)
class Drafted:
    """What the model's drafter did for one step."""

    rows: int = 0
    most_tokens: int = 0
    read_tokens: int = 0  # of prompts, where it was opened

    def seconds(self, machine: Machine) -> float:
        return machine.draft_seconds(self.most_tokens, self.rows) + self.read_tokens * machine.draft_prompt


def simulated_controllers(tenants: Sequence[Tenant], clock: Callable[[], float]) -> Controllers:
    return Controllers(Tenants(tenants), lambda: (DRAFT_MODEL,), clock=clock)


@dataclass(slots=True)
class Clock:
    """Simulated time, of all that one gateway serves."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(slots=True)
class Simulation:
    """All streams of one run; `policy` is every tenant's. Runs may share a gateway's controllers and clock."""

    machine: Machine
    policy: Tenant
    kinds: Sequence[TextKind]
    num_streams: int
    tokens_per_request: int = 200
    seed: int = 0
    seconds: float = 0.0
    tokens: int = 0
    num_requests: int = 0  # begun
    clock: Clock = field(default_factory=Clock)
    shared: Controllers | None = None
    controllers: Controllers = field(init=False)
    streams: list[Stream] = field(init=False)

    _random: random.Random = field(init=False)
    _ids: Callable[[], int] = field(init=False)

    def __post_init__(self) -> None:
        self.controllers = self.shared or simulated_controllers([self.policy], self.clock)
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

    def replay(self, num_requests: int) -> None:
        """Until a stream finds none of so many left; what was begun is dropped."""
        while self.num_requests <= num_requests:
            self.step()
        for stream in self.streams:
            stream.steering.close()

    def step(self) -> None:
        """One verify step in which every stream has a pass."""
        for stream in self.streams:
            stream.ngram_right = self._ngram_right(stream)
        drafted = self._drafted()
        lag = self.machine.round_trip + drafted.seconds(self.machine)
        self._tell_drafts(round(drafted.seconds(self.machine) * 1e6))
        commits = [self._pass(stream, lag) for stream in self.streams]
        prompts = sum(stream.kind.prompt_tokens for stream in self.streams if stream.is_new)
        num_tokens = prompts + sum(1 + commit.num_draft_tokens for commit in commits)
        verify = self.machine.verify_seconds(num_tokens) * self._jitter()
        waited = max(commit.wait_us for commit in commits) * 1e-6
        if not waited:
            verify += self.machine.contention * drafted.seconds(self.machine) * self._jitter()
        passed = verify + waited + self.machine.host * self.num_streams
        self.seconds += passed
        self.clock.now += passed
        report = StepReport(num_running=self.num_streams, num_tokens=num_tokens, step_us=round(verify * 1e6))
        for index, commit in enumerate(commits):
            self._publish(index, commit, report, in_time=verify > lag)

    def _drafted(self) -> Drafted:
        """By the drafter, for all streams that it drafts for: it works one token after the other for all of them."""
        work = Drafted()
        for stream in self.streams:
            assert stream.drafting is not None
            is_open, stream.is_open = stream.is_open, DRAFT_MODEL in stream.drafting.way
            if stream.is_open and not self._rests(stream):
                work.rows += 1 + (stream.drafting.fan_out if self.machine.overlaps else 0)
                work.most_tokens = max(work.most_tokens, stream.drafting.num_draft_tokens)
                work.read_tokens += 0 if is_open else stream.length
        return work

    def _tell_drafts(self, draft_us: int) -> None:
        for stream in self.streams:
            if stream.is_open and not self._rests(stream):
                wire = round(self.machine.round_trip * 1e6)
                stream.steering.note_drafts(DRAFT_MODEL, draft_us=draft_us, wire_us=wire)

    def _pass(self, stream: Stream, lag: float) -> Commit:
        drafting = stream.drafting
        assert drafting is not None
        stream.steering.note_trial(self._trial(stream.kind))
        for name in drafting.way:
            if name == NGRAM:
                if stream.ngram_right:
                    return self._commit(NGRAM, drafting.num_draft_tokens, stream.ngram_right, hit=True)
            else:
                return self._model_pass(stream, drafting, lag)
        return self._commit("", 0, 0.0, hit=False)

    def _model_pass(self, stream: Stream, drafting: Drafting, lag: float) -> Commit:
        machine, k, right = self.machine, drafting.num_draft_tokens, stream.kind.model
        pass_seconds = machine.verify_seconds(self.num_streams * (1 + k))
        in_time = min(1.0, pass_seconds / lag) if machine.overlaps else 0.0
        hit = drafting.fan_out > 0 and self._random.random() < stream.kind.guessed * in_time
        if hit:
            return self._commit(DRAFT_MODEL, k, right, hit=True)
        if self.num_streams == 1:
            return self._commit(DRAFT_MODEL, k, right, hit=False, wait=lag * self._jitter())
        if stream.ahead:
            return self._commit(DRAFT_MODEL, stream.ahead, right, hit=True)
        return self._commit("", 0, 0.0, hit=False)

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

    def _publish(self, index: int, commit: Commit, report: StepReport, *, in_time: bool) -> None:
        stream, count = self.streams[index], len(commit.token_ids)
        self.tokens += count
        stream.left -= count
        stream.length += count
        stream.is_new = False
        stream.ahead = self._left_of_path(stream, count) if in_time else 0
        if stream.left > 0:
            stream.steering.note_commit(commit, report)
        else:
            stream.steering.close()
            self.streams[index] = self._begin()

    def _left_of_path(self, stream: Stream, num_committed: int) -> int:
        """Of one that was drafted while the pass computed, if what the pass made final is what it began with."""
        assert stream.drafting is not None
        if not stream.is_open or self._accepted(num_committed, stream.kind.model) < num_committed:
            return 0
        return max(0, stream.drafting.num_draft_tokens - num_committed)

    def _begin(self) -> Stream:
        kind = self.kinds[self.num_requests % len(self.kinds)]
        self.num_requests += 1
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
        drafting["of"] = Stream(kind, steering, self.tokens_per_request, length=kind.prompt_tokens)
        drafting["of"].drafting = steering.open(VERIFIER)
        return drafting["of"]

    def _rests(self, stream: Stream) -> bool:
        """A drafter that takes turns with the verifier does, while n-grams have drafts."""
        return stream.ngram_right > 0 and not self.machine.overlaps

    def _ngram_right(self, stream: Stream) -> float:
        """If there is a match that counts: beside a drafter that does not rest, short ones do not."""
        drafting, kind = stream.drafting, stream.kind
        if drafting is None or NGRAM not in drafting.way:
            return 0.0
        is_alone = len(drafting.way) == 1 or not self.machine.overlaps
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

    def _jitter(self) -> float:
        return self._random.lognormvariate(0.0, self.machine.jitter)
