"""Beside a GPU, what a step has to say goes out while the next one is computed, and at once if there is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from slipstream.exchange import Commit, Draft, DraftBatch, DraftToken, LawKind
from slipstream.kernels.batch import Chunk
from slipstream.text.tokenizer import Tokenizer
from tests.scripted_runner import chain_law, random_law
from tests.verifier_svc.harness import REMOTE, VOCAB, Harness, tiny_tokenizer
from verifier_svc.meanwhile import take_in_nothing
from verifier_svc.messages import Close, Event, StreamOutput


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    return tiny_tokenizer(tmp_path)


class Sent:
    """A harness whose verifier sends during steps, and when it launched and sent."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.harness = Harness(random_law(VOCAB), tokenizer)
        self.events: list[str | int] = []
        self.tokens: list[int] = []
        launch = self.harness.runner.launch

        def noted_launch(chunks: list[Chunk], checks: list[object]) -> object:
            self.events.append("launch")
            return launch(chunks, checks)

        self.harness.runner.launch = noted_launch
        self.harness.verifier.work_during_steps(self.send, take_in_nothing)

    def hear(self, commits: Sequence[tuple[int, Commit]], *, waits: bool) -> None:
        self.events += [f"beside {commit.base}{' at once' if waits else ''}" for _, commit in commits]

    def send(self, outputs: list[StreamOutput]) -> None:
        for output in outputs:
            for commit in output.commits.commits:
                self.events.append(commit.base)
                self.tokens += commit.token_ids

    def run(self) -> None:
        while (wake := self.harness.verifier.next_wake()) is not None:
            self.harness.now = max(self.harness.now, wake)
            self.send(self.harness.verifier.step() or [])
            self.harness.now += 0.001


def test_commits_go_out_after_the_next_launch_and_the_last_without_one(tokenizer: Tokenizer) -> None:
    sent = Sent(tokenizer)
    sent.harness.open([5, 6, 7], sampling={"max_tokens": 3}, num_draft_tokens=0)
    sent.run()
    assert sent.events == ["launch", "launch", 3, "launch", 4, 5]


def test_the_text_is_the_same(tokenizer: Tokenizer) -> None:
    plain = Harness(random_law(VOCAB), tokenizer)
    plain.open([5, 6, 7], num_draft_tokens=0)
    plain.finish()
    sent = Sent(tokenizer)
    sent.harness.open([5, 6, 7], num_draft_tokens=0)
    sent.run()
    assert sent.tokens == plain.output()


def test_a_lone_sequence_that_waits_for_drafts_has_told_its_drafter_what_to_draft_for(tokenizer: Tokenizer) -> None:
    sent = Sent(tokenizer)
    sent.harness.open([5, 6, 7], max_wait_us=50_000, proposers=(REMOTE,))
    verifier = sent.harness.verifier
    verifier.step()
    wake = verifier.next_wake()
    assert wake is not None
    assert wake <= sent.harness.now, "somebody waits for what is held"
    verifier.step()
    assert sent.events == ["launch", 3]


def test_a_drafter_in_this_process_hears_at_once_and_the_network_when_the_next_step_runs(tokenizer: Tokenizer) -> None:
    sent = Sent(tokenizer)
    verifier = sent.harness.verifier
    verifier.hand_over_commits(sent.hear)
    sent.harness.open([5, 6, 7], max_wait_us=50_000, proposers=(REMOTE,), hand_over=5)
    verifier.step()
    wake = verifier.next_wake()
    assert wake is not None
    assert verifier.step() is None
    held_until = verifier.next_wake()
    assert held_until is not None
    assert held_until > sent.harness.now
    sent.harness.draft(4, [23, 23])
    verifier.step()
    sent.harness.post(Close(1))
    verifier.step()
    assert sent.events == ["launch", "beside 3 at once", "launch", 3, "beside 4", 4]


def test_a_step_that_waits_for_nothing_is_launched_before_that_drafter_hears(tokenizer: Tokenizer) -> None:
    sent = Sent(tokenizer)
    verifier = sent.harness.verifier
    verifier.hand_over_commits(sent.hear)
    sent.harness.open([5, 6, 7], proposers=(REMOTE,), hand_over=5)
    for _ in range(3):
        verifier.step()
    assert sent.events == ["launch", "launch", "beside 3", 3, "launch", "beside 4", 4]


def test_what_is_held_of_a_sequence_that_is_closed_still_goes_out(tokenizer: Tokenizer) -> None:
    sent = Sent(tokenizer)
    sent.harness.open([5, 6, 7], num_draft_tokens=0)
    sent.harness.verifier.step()
    sent.harness.post(Close(1))
    sent.run()
    assert sent.events == ["launch", 3]


def test_drafts_that_come_during_a_step_are_checked_by_the_next(tokenizer: Tokenizer) -> None:
    law = chain_law(VOCAB, lambda history: (history[-1] + 1) % VOCAB)
    harness = Harness(law, tokenizer)
    harness.open([5], num_draft_tokens=3)
    verifier, said = harness.verifier, list[Commit]()

    def take_in(may_come: Callable[[Event], bool], until: float) -> None:
        """The drafter has guessed how this step will end: with the next number, right where nothing is drafted yet."""
        (active,) = verifier.sequences.all
        base = active.engine.num_tokens
        tokens = [DraftToken(base + 5, LawKind.ASSUMED), *(DraftToken(base + i, LawKind.ONE_HOT) for i in (6, 7, 8))]
        event = (1, DraftBatch((Draft(1, base, REMOTE, base, tuple(tokens)),)))
        assert may_come(event)
        assert not may_come((1, Close(1)))
        verifier.handle(event)

    verifier.work_during_steps(lambda outputs: said.extend(outputs[0].commits.commits), take_in)
    while harness.verifier.next_wake() is not None:
        verifier.step()
    assert [token_id for commit in said for token_id in commit.token_ids] == list(range(6, 18))
    undrafted, drafted = (0, False), (3, True)
    assert [(commit.num_accepted, commit.hit) for commit in said[:4]] == [undrafted, drafted, undrafted, drafted]
