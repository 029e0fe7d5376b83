"""Steps launched before the one ahead of them ends write the text that they would have written after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slipstream.engine.scheduler import Scheduler
from slipstream.engine.successor import Successor
from slipstream.exchange import Commit, Draft, DraftBatch, DraftToken, LawKind
from slipstream.kernels.batch import Chunk
from slipstream.request import FinishReason, SamplingParams, SequenceRequest, VerificationMode
from slipstream.sampling.check import SequenceCheck, Verdict
from slipstream.text.tokenizer import Tokenizer
from tests.scripted_runner import ScriptedRunner, chain_law
from tests.verifier_svc.harness import REMOTE, VOCAB
from verifier_svc.messages import Close, Event, StreamOutput
from verifier_svc.verifier import Verifier

END = VOCAB - 1  # the model's own end token


def successor(history: tuple[int, ...]) -> int:
    return (3 * history[-1] + 5 * history[-2] + len(history)) % VOCAB


class AheadRunner(ScriptedRunner):
    """Computes a step that follows another one when it is asked for, but with what it knew when it was launched."""

    can_follow = True

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.num_ahead = self.num_drafted = 0
        self._outcomes: list[tuple[int, int]] = []

    def launch(self, chunks: Sequence[Chunk], checks: Sequence[SequenceCheck]) -> Callable[[], list[Verdict]]:
        def finish() -> list[Verdict]:
            verdicts = self.verify(chunks, checks)
            self._outcomes = [(verdict.num_accepted, verdict.token_ids[-1]) for verdict in verdicts]
            return verdicts

        return finish

    def launch_after(self, successors: Sequence[Successor]) -> Callable[[], list[tuple[int, int]]]:
        self.num_ahead += 1
        known = [replace(one, block_ids=tuple(one.block_ids)) for one in successors]

        def finish() -> list[tuple[int, int]]:
            pairs = [self._behind(*both) for both in zip(known, self._outcomes, strict=True)]
            self.launch(*map(list, zip(*pairs, strict=True)))()
            return self._outcomes

        return finish

    def _behind(self, one: Successor, outcome: tuple[int, int]) -> tuple[Chunk, SequenceCheck]:
        (num_accepted, token_id), base = outcome, one.check.base + outcome[0] + 1
        drafts = [b.draft_ids for b in one.branches if (b.num_accepted, b.token_id) == (num_accepted, token_id)]
        draft_ids = list(drafts[0]) if drafts else []
        self.num_drafted += bool(draft_ids)
        draft = tuple(DraftToken(draft_id, LawKind.ONE_HOT) for draft_id in draft_ids)
        chunk = Chunk([token_id, *draft_ids], base - 1, one.block_ids, 1 + len(draft_ids))
        return chunk, replace(one.check, base=base, draft=draft)


class Told:
    """A verifier beside a GPU, a drafter that is right most of the time, and what the gateway heard."""

    def __init__(
        self, tokenizer: Tokenizer, *, ahead: bool, num_blocks: int = 64, seed: int = 0, local: tuple[str, ...] = ()
    ) -> None:
        self.runner = AheadRunner(
            chain_law(VOCAB, successor), VOCAB, num_blocks=num_blocks, eos_token_ids=(END,), max_model_len=64
        )
        scheduler = Scheduler(max_num_seqs=8, max_num_batched_tokens=40, max_waiting=8)
        self.now = 100.0
        self.verifier = Verifier(
            self.runner, tokenizer, scheduler, local_proposers=local, launches_ahead=ahead, clock=lambda: self.now
        )
        self.verifier.work_during_steps(self._send, self._draft)
        self.text: dict[int, list[int]] = {}
        self.ends: dict[int, FinishReason] = {}
        self.failures: dict[int, Exception] = {}
        self.arriving: list[Event] = []  # that come during the next step
        self.drafting = True
        self._rng = np.random.default_rng(seed)
        self._draw = 0

    def open(self, sequence_id: int, prompt: list[int], **options: Any) -> None:
        sampling = {"temperature": 0.0, "max_tokens": 15} | options.pop("sampling", {})
        defaults = {"num_draft_tokens": 3, "proposers": (REMOTE,), "mode": VerificationMode.RATIO}
        self.verifier.handle((1, SequenceRequest(
            sequence_id=sequence_id, token_ids=tuple(prompt), num_prompt_tokens=len(prompt),
            sampling=SamplingParams(**sampling), **(defaults | options),
        )))  # fmt: skip

    def run(self, steps: int = 300) -> None:
        for _ in range(steps):
            if self.verifier.next_wake() is None:
                return
            self.verifier.step()
            self._end_of_step()

    def _end_of_step(self) -> None:
        """As an engine's thread does: what had to wait is handled now."""
        self.now += 0.01
        arrived, self.arriving = self.arriving, []
        for event in arrived:
            self.verifier.handle(event)

    def _send(self, outputs: list[StreamOutput]) -> None:
        for output in outputs:
            for commit in output.commits.commits:
                self._hear(commit)
            self.failures.update({failure.sequence_id: failure.error for failure in output.failures})

    def _hear(self, commit: Commit) -> None:
        self.text.setdefault(commit.sequence_id, []).extend(commit.token_ids)
        if commit.finish_reason is not FinishReason.NONE:
            self.ends[commit.sequence_id] = commit.finish_reason

    def _draft(self, may_come: Callable[[Event], bool], until: float) -> None:
        if self.arriving and not may_come(self.arriving[0]):
            return
        for active in list(self.verifier.sequences.all) if self.drafting else ():
            tokens = active.engine.token_ids
            for num_right in (1, 2, 4):  # outcomes of the pass under way
                path = list(self._path(tuple(tokens), num_right + 3))
                drafts = [DraftToken(t, LawKind.ASSUMED if i < num_right else LawKind.ONE_HOT) for i, t in path]
                self._draw += 1
                draft = Draft(active.request.sequence_id, len(tokens), REMOTE, self._draw, tuple(drafts))
                self.verifier.handle((1, DraftBatch((draft,))))

    def _path(self, history: tuple[int, ...], length: int) -> Iterator[tuple[int, int]]:
        for i in range(length):
            token = successor(history)
            if self._rng.random() < 0.2:
                token = int(self._rng.integers(VOCAB))
            yield i, token
            history = (*history, token)


def expected(prompt: list[int], max_tokens: int) -> list[int]:
    text: list[int] = []
    while len(text) < max_tokens and (not text or text[-1] != END):
        text.append(successor((*prompt, *text)))
    return text


@pytest.mark.parametrize("drafting", [False, True])
@pytest.mark.parametrize("num_blocks", [64, 14])  # room for all, and for one or two at a time
def test_the_text_is_that_of_the_model_whether_or_not_steps_are_launched_ahead(
    tokenizer: Tokenizer, drafting: bool, num_blocks: int
) -> None:
    prompts = {i: [i, 2 * i + 1, 7] for i in range(4)}
    for ahead in (True, False):
        told = Told(tokenizer, ahead=ahead, num_blocks=num_blocks)
        told.drafting = drafting
        for sequence_id, prompt in prompts.items():
            k = 3 if drafting else 0
            told.open(sequence_id, prompt, sampling={"max_tokens": 6 + 5 * sequence_id}, num_draft_tokens=k)
        told.run()
        for sequence_id, prompt in prompts.items():
            assert told.text[sequence_id] == expected(prompt, 6 + 5 * sequence_id), f"ahead: {ahead}"
        assert len(told.ends) == 4
        assert told.verifier.pool.num_used == 0
        assert (told.runner.num_ahead > 0) == ahead
        assert (told.runner.num_drafted > 0) == (ahead and drafting)


def test_sequences_that_come_and_go_meanwhile_disturb_nobody(tokenizer: Tokenizer) -> None:
    told = Told(tokenizer, ahead=True, num_blocks=40)
    for sequence_id in range(3):
        told.open(sequence_id, [sequence_id, 4, 9], sampling={"max_tokens": 30, "ignore_eos": True})
    told.run(steps=6)
    told.verifier.handle((1, Close(1)))
    told.run(steps=2)
    told.open(7, [3, 3, 3], sampling={"max_tokens": 20, "ignore_eos": True})
    told.run()
    for sequence_id, prompt, count in ((0, [0, 4, 9], 30), (2, [2, 4, 9], 30), (7, [3, 3, 3], 20)):
        right: list[int] = []
        while len(right) < count:
            right.append(successor((*prompt, *right)))
        assert told.text[sequence_id] == right
    assert told.runner.num_ahead > 8
    assert told.verifier.pool.num_used == 0


@pytest.mark.parametrize(
    "options",
    [
        {"sampling": {"temperature": 1.0}},
        {"sampling": {"frequency_penalty": 0.5}},
        {"sampling": {"logprobs": True}},
        {"sampling": {"temperature": 1.0, "top_k": 3}, "mode": VerificationMode.COUPLED},
        {"max_wait_us": 1000},
    ],
)
def test_nothing_is_launched_ahead_of_what_more_than_the_outcome_decides(
    tokenizer: Tokenizer, options: dict[str, Any]
) -> None:
    told = Told(tokenizer, ahead=True)
    told.open(1, [5, 6, 7], **options)
    told.run()
    assert told.text[1]
    assert told.runner.num_ahead == 0


def test_a_step_is_not_launched_ahead_of_drafts_that_may_still_come(tokenizer: Tokenizer) -> None:
    told = Told(tokenizer, ahead=True)
    told.drafting = False
    for sequence_id in (1, 2):
        told.open(sequence_id, [5, 6, sequence_id])
    told.run(steps=8)
    assert told.runner.num_ahead == 0
    told.run()
    assert told.text[1] == expected([5, 6, 1], 15)


@pytest.mark.parametrize(("mode", "num_draft_tokens"), [(VerificationMode.COUPLED, 3), (VerificationMode.RATIO, 0)])
def test_sampling_that_drafts_cannot_change_is_launched_ahead_and_says_the_same(
    tokenizer: Tokenizer, mode: VerificationMode, num_draft_tokens: int
) -> None:
    texts = []
    for ahead in (True, False):
        told = Told(tokenizer, ahead=ahead)
        for sequence_id in (1, 2):
            sampling = {"temperature": 1.0, "ignore_eos": True}
            drafting = {"mode": mode, "num_draft_tokens": num_draft_tokens}
            told.open(sequence_id, [5, 6, sequence_id], seed=9, sampling=sampling, **drafting)
        told.run()
        texts.append(told.text)
        assert (told.runner.num_ahead > 0) == ahead
    assert texts[0] == texts[1]
