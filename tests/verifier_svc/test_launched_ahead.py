"""What happens around a step that is launched already: ends of every kind, arrivals, late drafts, at random."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slipstream.errors import DeadlineExceeded
from slipstream.exchange import Draft, DraftBatch, DraftToken, LawKind, Update
from slipstream.request import FinishReason, SamplingParams, SequenceRequest, VerificationMode
from slipstream.text.detokenizer import Detokenizer
from slipstream.text.tokenizer import Tokenizer
from tests.verifier_svc.harness import REMOTE
from tests.verifier_svc.test_lookahead import END, Told, successor
from verifier_svc.messages import Close, StreamEnded

LONG = {"max_tokens": 40, "ignore_eos": True}
PROMPT = [5, 6, 7]


def right_text(prompt: list[int], count: int) -> list[int]:
    text: list[int] = []
    while len(text) < count:
        text.append(successor((*prompt, *text)))
    return text


def launched(tokenizer: Tokenizer, *sequence_ids: int, **options: Any) -> Told:
    """Sequences of which a step has just been launched behind another one."""
    told = Told(tokenizer, ahead=True)
    for sequence_id in sequence_ids:
        told.open(sequence_id, [*PROMPT, sequence_id], **({"sampling": LONG} | options))
    told.run(steps=6)
    assert told.verifier._ahead is not None
    return told


@pytest.mark.parametrize("end", ["close", "stream", "deadline"])
def test_a_sequence_that_ends_while_its_next_step_is_launched_leaves_nothing_and_disturbs_nobody(
    tokenizer: Tokenizer, end: str
) -> None:
    deadline = {"deadline_ms": 100} if end == "deadline" else {}
    told = launched(tokenizer, 1, **deadline)
    told.verifier.handle((2, _request(2, [9, 9, 9])))
    told.run(steps=1)
    if end == "deadline":
        told.now += 1.0
    else:
        told.verifier.handle((1, Close(1) if end == "close" else StreamEnded()))
    num_steps = told.runner.num_ahead
    told.run()
    assert told.text[2] == right_text([9, 9, 9], 40)
    said = told.text[1]
    assert said == right_text([*PROMPT, 1], len(said))
    assert len(said) < 40
    assert isinstance(told.failures.get(1), DeadlineExceeded) == (end == "deadline")
    assert told.runner.num_ahead > num_steps
    assert told.verifier.pool.num_used == 0


def _request(sequence_id: int, prompt: list[int], **options: Any) -> SequenceRequest:
    return SequenceRequest(
        sequence_id=sequence_id, token_ids=tuple(prompt), num_prompt_tokens=len(prompt), num_draft_tokens=3,
        sampling=SamplingParams(temperature=0.0, **LONG), proposers=(REMOTE,), mode=VerificationMode.RATIO, **options,
    )  # fmt: skip


def test_who_comes_during_a_step_is_computed_in_the_next_one(tokenizer: Tokenizer) -> None:
    told = launched(tokenizer, 1, 2)
    told.run(steps=1)
    told.arriving = [(1, _request(3, [8, 8, 8]))]
    told.run(steps=1)  # behind which nothing is launched, for someone came
    assert told.verifier._ahead is None
    told.run(steps=1)
    assert [chunk.token_ids for chunk in told.runner.chunks[-1]][-1] == (8, 8, 8)
    told.run()
    assert told.text[3] == right_text([8, 8, 8], 40)


def test_nothing_is_launched_behind_the_last_token_of_all(tokenizer: Tokenizer) -> None:
    told = Told(tokenizer, ahead=True)
    told.drafting = False
    told.open(1, PROMPT, sampling={"max_tokens": 6, "ignore_eos": True}, num_draft_tokens=0)
    told.run()
    assert told.text[1] == right_text(PROMPT, 6)
    assert len(told.runner.chunks) == 6, "a step was computed for nothing"


@pytest.mark.parametrize("kind", ["stop token", "stop string", "length"])
def test_text_ends_inside_an_accepted_block_where_it_ends_without(tokenizer: Tokenizer, kind: str) -> None:
    text = right_text(PROMPT, 30)
    for place in range(3, 12):
        token = text[place]
        sampling: dict[str, Any] = {"max_tokens": place + 1 if kind == "length" else 30, "ignore_eos": True}
        if kind == "stop token":
            sampling["stop_token_ids"] = (token,)
        elif kind == "stop string":
            sampling["stop_strings"] = (Detokenizer(tokenizer).feed(token) or "?",)
        told = Told(tokenizer, ahead=True, seed=place)
        told.open(1, PROMPT, sampling=sampling)
        told.run()
        plain = Told(tokenizer, ahead=False, seed=place)
        plain.drafting = False
        plain.open(1, PROMPT, sampling=sampling, num_draft_tokens=0)
        plain.run()
        assert (told.text, told.ends) == (plain.text, plain.ends)
        assert told.ends[1] is (FinishReason.LENGTH if kind == "length" else FinishReason.STOP) or kind == "stop string"
        assert told.verifier.pool.num_used == 0


def test_drafts_that_come_after_the_launch_serve_the_step_behind_it(tokenizer: Tokenizer) -> None:
    told = launched(tokenizer, 1, 2)
    told.drafting = False
    known = told.text[1]
    truth = right_text([*PROMPT, 1], 40)
    path = [DraftToken(token, LawKind.ONE_HOT) for token in truth[len(known) : len(known) + 9]]
    told.verifier.handle((1, DraftBatch((Draft(1, len(PROMPT) + 1 + len(known), REMOTE, 99, tuple(path)),))))
    told.run()
    assert told.text[1] == truth


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_where_ngrams_find_nothing_for_a_while_steps_are_launched_ahead_and_the_text_stays(
    tokenizer: Tokenizer, temperature: float
) -> None:
    texts = []
    for ahead in (True, False):
        told = Told(tokenizer, ahead=ahead, num_blocks=128, local=("ngram",))
        told.drafting = False
        sampling = {"temperature": temperature, "max_tokens": 45, "ignore_eos": True}
        told.open(1, PROMPT, proposers=("ngram",), seed=5, sampling=sampling)
        told.run()
        texts.append(told.text)
        assert (told.runner.num_ahead > 5) == ahead
    assert texts[0] == texts[1]


def test_ngrams_that_find_something_are_asked_at_every_step(tokenizer: Tokenizer) -> None:
    """Drafts of the gateway's count as well: those that come make a quiet sequence an expectant one."""
    told = Told(tokenizer, ahead=True, local=("ngram",))
    told.drafting = False
    told.open(1, PROMPT, proposers=("ngram",), sampling=LONG)
    told.run(steps=12)
    (active,) = told.verifier.sequences.all
    assert not active.is_drafted
    draft = DraftToken(right_text(PROMPT, 40)[len(told.text[1]) + 1], LawKind.ONE_HOT)
    guess = DraftToken(right_text(PROMPT, 40)[len(told.text[1])], LawKind.ASSUMED)
    told.verifier.handle((1, DraftBatch((Draft(1, active.engine.num_tokens, "ngram", 0, (guess, draft)),))))
    assert active.is_drafted
    told.run()
    assert told.text[1] == right_text(PROMPT, 40)


def random_story(told: Told, rng: np.random.Generator) -> dict[int, tuple[list[int], int]]:
    """Sequences that were opened, by id: prompt and most tokens."""
    opened: dict[int, tuple[list[int], int]] = {}
    for time in range(60):
        roll = rng.random()
        if roll < 0.25 and len(opened) < 14:
            prompt, most = rng.integers(END, size=int(rng.integers(2, 30))).tolist(), int(rng.integers(1, 25))
            mode = VerificationMode.RATIO if rng.random() < 0.7 else VerificationMode.COUPLED
            options: dict[str, Any] = {"num_draft_tokens": int(rng.integers(0, 6)), "mode": mode}
            if rng.random() < 0.3:
                options["proposers"] = ("ngram",)
            if rng.random() < 0.2:
                options["deadline_ms"] = int(rng.integers(20, 200))
            told.open(time, prompt, sampling={"max_tokens": most}, **options)
            opened[time] = prompt, most
        elif roll < 0.3 and opened:
            told.arriving.append((1, Close(int(rng.choice(list(opened))))))
        elif roll < 0.4 and opened:
            told.verifier.handle((1, Update(int(rng.choice(list(opened))), int(rng.integers(0, 6)), 0, 0)))
        told.drafting = bool(rng.random() < 0.8)
        told.run(steps=int(rng.integers(1, 4)))
    told.drafting = True
    told.run(steps=600)
    return opened


@pytest.mark.parametrize("num_blocks", [16, 64])
def test_whatever_comes_and_goes_each_text_is_the_models(tokenizer: Tokenizer, num_blocks: int) -> None:
    num_ahead = num_complete = 0
    for seed in range(8):
        told = Told(tokenizer, ahead=True, num_blocks=num_blocks, seed=seed, local=("ngram",))
        for sequence_id, (prompt, most) in random_story(told, np.random.default_rng(seed)).items():
            text = told.text.get(sequence_id, [])
            right = right_text(prompt, most)
            right = right[: right.index(END) + 1] if END in right else right
            assert text == right[: len(text)], f"seed {seed}, sequence {sequence_id}"
            num_complete += sequence_id in told.ends
            assert sequence_id not in told.ends or text == right
        assert told.verifier.pool.num_used == 0
        assert told.verifier.next_wake() is None
        num_ahead += told.runner.num_ahead
    assert num_ahead > 100
    assert num_complete > 40


def test_where_a_drafter_is_silent_steps_are_launched_ahead_after_a_while(tokenizer: Tokenizer) -> None:
    told = Told(tokenizer, ahead=True, num_blocks=128)
    told.drafting = False
    sampling = {"temperature": 0.0, "max_tokens": 60, "ignore_eos": True}
    for sequence_id in (1, 2):
        told.open(sequence_id, PROMPT, seed=5, sampling=sampling)
    told.run(steps=8)
    assert told.runner.num_ahead == 0
    told.run()
    assert told.runner.num_ahead > 20
