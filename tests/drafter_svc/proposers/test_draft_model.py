"""Drafting with a real, tiny model: rows in a batch, laws, ids of reduced and padded vocabularies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from drafter_svc.proposers.draft_model import DraftModel, load_draft_model
from drafter_svc.proposers.proposer import Drawing, Limits, Proposal, Row
from slipstream.config import EngineConfig
from slipstream.exchange import LAW_TOTAL, LawKind
from slipstream.kernels.batch import Chunk
from slipstream.request import SamplingParams, VerificationMode
from tests.drafter_svc.scripted import VOCAB, ScriptedRunner, token_choice
from tests.tiny_models import make_checkpoint

RATIO, COUPLED = VerificationMode.RATIO, VerificationMode.COUPLED
BLOCK_SIZE = 16


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("draft") / "tiny", vocab_size=320)


def engine(checkpoint: Path) -> EngineConfig:
    return EngineConfig(model=checkpoint, dtype="float32", num_kv_blocks=16)


def row(
    prompt: list[int],
    block: int,
    *,
    temperature: float = 1.0,
    mode: VerificationMode = RATIO,
    seed: int = 1,
    draw: int = 0,
    num_wanted: int = 1,
    top_k: int = 0,
) -> Row:
    return Row(
        token_ids=prompt,
        start=0,
        block_ids=[block],
        drawing=Drawing(
            sampling=SamplingParams(temperature=temperature, top_k=top_k),
            mode=mode,
            seed=seed,
            draft_key=99,
            sample_index=0,
        ),
        draw=draw,
        num_wanted=num_wanted,
        num_outcomes=4,
    )


def as_values(proposals: tuple[Proposal, ...]) -> list[object]:
    return [
        (
            proposal.token.token_id,
            proposal.token.kind,
            proposal.outcomes,
            proposal.token.law and proposal.token.law.token_ids.tolist(),
        )
        for proposal in proposals
    ]


def test_a_batch_of_rows_draws_what_each_row_draws_alone(checkpoint: Path) -> None:
    model = load_draft_model(engine(checkpoint), num_target_ids=320, num_kept=32)
    rows = [
        row([1, 2, 3], 0),
        row([5] * 9, 1, temperature=0.0),
        row([7, 8], 2, mode=COUPLED),
        row([9], 3, num_wanted=0),
        row([4, 4, 4], 4, temperature=0.5, draw=8),
    ]
    together = [as_values(proposals) for proposals in model.propose(rows)]
    alone = [as_values(model.propose([one])[0]) for one in rows]
    assert together == alone
    assert together[3] == []


def test_rows_that_only_fill_the_cache_need_no_draw(checkpoint: Path) -> None:
    model = load_draft_model(engine(checkpoint), num_target_ids=320, num_kept=32)
    assert model.propose([row([1, 2], 0, num_wanted=0)]) == [()]


def test_what_is_drawn_follows_its_law() -> None:
    model = scripted()
    proposals = [proposal for (proposal,) in model.propose([row([1, 2, 3], 0, draw=draw) for draw in range(2000)])]
    law = proposals[0].token.law
    assert law is not None
    assert law.counts.sum(dtype=np.int64) == LAW_TOTAL
    drawn = np.bincount([proposal.token.token_id for proposal in proposals], minlength=VOCAB) / len(proposals)
    expected = np.zeros(VOCAB)
    expected[law.token_ids] = law.counts / LAW_TOTAL
    assert np.abs(drawn - expected).max() < 0.04
    assert np.abs(drawn[::-1] - expected).max() > 0.04  # the check can fail


def scripted(num_target_ids: int = VOCAB, target_ids: torch.Tensor | None = None, vocab: int = VOCAB) -> DraftModel:
    limits = Limits(num_blocks=4, block_size=BLOCK_SIZE, max_model_len=64, vocab_size=VOCAB)

    def logits(context: object) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        return np.arange(vocab, dtype=np.float32) / 3

    runner = ScriptedRunner(limits, logits)
    return DraftModel(runner, limits, token_choice(num_target_ids, target_ids))


@pytest.mark.parametrize("temperature, mode", [(0.0, RATIO), (1.0, RATIO), (1.0, COUPLED)])
def test_padding_ids_are_never_drafted_nor_guessed(temperature: float, mode: VerificationMode) -> None:
    model = scripted(num_target_ids=5)  # the seven likeliest ids are padding
    for draw in range(50):
        ((proposal,),) = model.propose([row([1], 0, temperature=temperature, mode=mode, draw=draw, seed=draw)])
        assert proposal.token.token_id < 5
        assert max(proposal.outcomes) < 5


@pytest.mark.parametrize("temperature, mode", [(0.0, RATIO), (1.0, RATIO), (1.0, COUPLED)])
def test_a_reduced_vocabulary_speaks_in_the_targets_ids(temperature: float, mode: VerificationMode) -> None:
    reduced = [1, 4, 9]
    model = scripted(target_ids=torch.tensor(reduced))
    runner = model._runner
    assert isinstance(runner, ScriptedRunner)
    runner.logits = lambda context: np.array([0.0, 1.0, 2.0], dtype=np.float32)
    seen = set()
    for draw in range(50):
        ((proposal,),) = model.propose([row([1], 0, temperature=temperature, mode=mode, draw=draw, seed=draw)])
        seen |= {proposal.token.token_id, *proposal.outcomes}
        if proposal.token.law is not None:
            assert sorted(proposal.token.law.token_ids.tolist()) == reduced
    assert seen == set(reduced)


def test_draft_tokens_are_one_hot_where_they_are_checked_by_match() -> None:
    model = scripted()
    kinds = [
        model.propose([row([1], 0, temperature=temperature, mode=mode)])[0][0].token.kind
        for temperature, mode in [(0.0, RATIO), (1.0, COUPLED), (1.0, RATIO)]
    ]
    assert kinds == [LawKind.ONE_HOT, LawKind.ONE_HOT, LawKind.SPARSE]


def test_the_requests_shaping_is_applied_to_the_draft() -> None:
    ((proposal,),) = scripted().propose([row([1], 0, top_k=2)])
    assert proposal.token.law is not None
    assert set(proposal.token.law.token_ids.tolist()) == {VOCAB - 1, VOCAB - 2}


def test_a_checkpoint_of_a_reduced_vocabulary_drafts_the_same_laws_over_fewer_tokens(
    checkpoint: Path, tmp_path: Path
) -> None:
    reduced = make_checkpoint(tmp_path / "reduced", vocab_size=320)
    target_ids = torch.arange(3, 320, 7)
    save_file({"d2t": target_ids - torch.arange(len(target_ids))}, reduced / "d2t.safetensors")
    prompt = row([1, 2, 3], 0, temperature=0.0)
    model = load_draft_model(engine(reduced), num_target_ids=320, num_kept=32)
    ((part,),) = model.propose([prompt])
    allowed = set(target_ids.tolist())
    assert {part.token.token_id, *part.outcomes} <= allowed
    ((everything,),) = load_draft_model(engine(checkpoint), num_target_ids=320, num_kept=32).propose(
        [replace(prompt, num_outcomes=256)]
    )
    assert part.outcomes == tuple(token_id for token_id in everything.outcomes if token_id in allowed)[:4]


def test_a_greedy_token_tells_its_probability_and_a_drawn_one_tells_nothing(checkpoint: Path) -> None:
    model = load_draft_model(engine(checkpoint), num_target_ids=320, num_kept=8)
    rows = [row([1, 2, 3], 0, temperature=0.0), row([1, 2, 3], 1, mode=RATIO), row([1, 2, 3], 2, mode=COUPLED)]
    (greedy,), (drawn,), (coupled,) = model.propose(rows)
    assert isinstance(model, DraftModel)
    probs = model._runner.forward([Chunk([1, 2, 3], 0, [0], 1)])[0].softmax(-1)
    assert greedy.confidence == pytest.approx(float(probs.max()), rel=1e-4)
    assert coupled.confidence == pytest.approx(float(probs[coupled.token.token_id]), rel=1e-4)
    assert drawn.confidence == 1.0
