"""Parallel drafting: laws as a plain pass gives them, masks that nobody ever reads, the text the target's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import save_file
from scipy import stats

from drafter_svc.events import Closed
from drafter_svc.proposers import pard
from drafter_svc.proposers.pard import NAME, ParallelDraft, load_parallel_draft
from drafter_svc.proposers.proposer import Drawing, Limits, Proposal, Row
from slipstream.config import EngineConfig
from slipstream.errors import CheckpointError
from slipstream.exchange import LAW_TOTAL, DraftToken, LawKind
from slipstream.models.loader import load_model
from slipstream.request import SamplingParams, VerificationMode
from slipstream.sampling.token_rules import make_token_rules
from tests.drafter_svc.scripted import (
    VOCAB,
    ScriptedRunner,
    ScriptedVerifier,
    Setup,
    context_logits,
    request,
    token_choice,
)
from tests.tiny_models import make_checkpoint

RATIO, COUPLED = VerificationMode.RATIO, VerificationMode.COUPLED
MASK = 319  # of the checkpoint
SCRIPTED_MASK = 11
BLOCK_SIZE = 4


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("draft") / "tiny", pard_token=MASK, spd_type="pard")


def loaded(checkpoint: Path) -> ParallelDraft:
    engine = EngineConfig(model=checkpoint, dtype="float32", num_kv_blocks=32, block_size=BLOCK_SIZE)
    proposer = load_parallel_draft(engine, num_target_ids=320, num_kept=320)
    assert isinstance(proposer, ParallelDraft)
    return proposer


def row(prompt: Sequence[int], *, start: int = 0, first_block: int = 0, num_wanted: int = 4, **drawing: object) -> Row:
    given: dict[str, object] = {"sampling": SamplingParams(), "mode": RATIO, "seed": 1, "draft_key": 9}
    return Row(
        token_ids=prompt[start:],
        start=start,
        block_ids=range(first_block, first_block + 8),
        drawing=Drawing(sample_index=0, **given | drawing),  # type: ignore[arg-type]
        draw=0,
        num_wanted=num_wanted,
        num_outcomes=4,
    )


@torch.no_grad()
def plain_laws(checkpoint: Path, prompt: Sequence[int], count: int) -> npt.NDArray[np.float32]:
    """[count, vocab]: one pass over the prompt and count - 1 masks, without a cache."""
    model = load_model(checkpoint, torch.float32, torch.device("cpu"))
    hidden = model.forward_dense(torch.tensor([[*prompt, *[MASK] * (count - 1)]]))[0, -count:]
    laws: npt.NDArray[np.float32] = model.logits(hidden).softmax(-1).numpy()
    return laws


def shipped_laws(proposals: Sequence[Proposal], vocab: int = 320) -> npt.NDArray[np.float64]:
    laws = np.zeros((len(proposals), vocab))
    for proposal, law in zip(proposals, laws, strict=True):
        assert proposal.token.law is not None
        law[proposal.token.law.token_ids] = proposal.token.law.counts / LAW_TOTAL
    return laws


def test_the_laws_of_a_block_are_those_of_one_plain_pass_with_masks(checkpoint: Path) -> None:
    prompt = [5, 6, 7, 8, 9]
    (proposals,) = loaded(checkpoint).propose([row(prompt)])
    expected = plain_laws(checkpoint, prompt, 4)
    np.testing.assert_allclose(shipped_laws(proposals), expected, atol=0.01)  # rounding goes to the likeliest
    assert np.abs(shipped_laws(proposals)[1:] - expected[:-1]).max() > 0.02, "the places could be confused"


def test_rows_of_any_kind_draw_together_what_they_draw_alone(checkpoint: Path) -> None:
    model = loaded(checkpoint)
    rows = [
        row([1, 2, 3], num_wanted=3),
        row([5] * 9, first_block=8, num_wanted=0),
        row([7, 8], first_block=16, sampling=SamplingParams(temperature=0.0), num_wanted=5),
        row([4, 4], first_block=24, mode=COUPLED, num_wanted=1),
    ]
    together = model.propose(rows)
    assert [len(proposals) for proposals in together] == [3, 0, 5, 1]
    for one, proposals in zip(rows, together, strict=True):
        (alone,) = model.propose([one])
        assert [p.token.token_id for p in alone] == [p.token.token_id for p in proposals]
        assert [p.outcomes for p in alone] == [p.outcomes for p in proposals]


def test_a_pass_over_the_places_of_masks_is_as_if_they_had_never_been(checkpoint: Path) -> None:
    used, fresh = loaded(checkpoint), loaded(checkpoint)
    prompt, later = [5, 6, 7, 8, 9], [5, 6, 7, 8, 9, 20, 21, 22]
    used.propose([row(prompt)])
    fresh.propose([row(prompt, num_wanted=0)])
    after_masks, after_nothing = (model.propose([row(later, start=len(prompt))])[0] for model in (used, fresh))
    np.testing.assert_array_equal(shipped_laws(after_masks), shipped_laws(after_nothing))
    used.propose([row(prompt)])
    (over_a_mask,) = used.propose([row(later, start=len(prompt) + 1)])
    assert np.abs(shipped_laws(over_a_mask) - shipped_laws(after_nothing)).max() > 0.02, "a mask's KV would show"


def test_rules_see_the_tokens_drawn_before_in_the_block() -> None:
    limits = scripted_limits()
    model = scripted(ScriptedRunner(limits, lambda context: np.arange(VOCAB, dtype=np.float32)), limits)
    sampling = SamplingParams(temperature=0.0, frequency_penalty=1.5, bad_words=((10, 8),))
    plain = row([1, 2, 3], sampling=sampling, num_wanted=6)
    ruled = replace(plain, rules=make_token_rules(sampling, [1, 2, 3], 3, ()))
    (unruled,), (drawn,) = model.propose([plain]), model.propose([ruled])
    assert [p.token.token_id for p in unruled] == [11] * 6
    assert [p.token.token_id for p in drawn] == [11, 10, 11, 9, 10, 11]  # the last would be 8, which may not follow 10


def test_rules_that_change_nothing_draw_what_no_rules_draw(checkpoint: Path) -> None:
    model = loaded(checkpoint)
    idle = SamplingParams(bad_words=((300, 301),))
    plain = row([5, 6, 7], sampling=SamplingParams())
    ruled = replace(plain, rules=make_token_rules(idle, [5, 6, 7], 3, ()))
    (at_once,), (in_turn,) = model.propose([plain]), model.propose([ruled])
    assert [p.token.token_id for p in at_once] == [p.token.token_id for p in in_turn]
    np.testing.assert_array_equal(shipped_laws(at_once), shipped_laws(in_turn))


def test_a_reduced_vocabulary_speaks_in_the_targets_ids(tmp_path: Path) -> None:
    reduced = make_checkpoint(tmp_path / "reduced", pard_token=MASK)
    ids = torch.arange(3, 320, 7)
    save_file({"d2t": ids - torch.arange(len(ids))}, reduced / "d2t.safetensors")
    (proposals,) = loaded(reduced).propose([row([1, 2, 3])])
    assert {p.token.token_id for p in proposals} <= set(ids.tolist())


@pytest.mark.parametrize(
    "entries, words",
    [({}, "pard_token"), ({"pard_token": 320}, "320"), ({"pard_token": 3, "spd_type": "medusa"}, "medusa")],
)
def test_a_model_that_was_not_made_for_it_is_refused_by_name(
    tmp_path: Path, entries: dict[str, object], words: str
) -> None:
    with pytest.raises(CheckpointError, match=words) as refused:
        loaded(make_checkpoint(tmp_path / "plain", **entries))  # type: ignore[arg-type]
    assert "config.json" in str(refused.value)


def scripted_limits(num_lookahead: int = 7) -> Limits:
    return Limits(num_blocks=64, block_size=BLOCK_SIZE, max_model_len=64, vocab_size=VOCAB, num_lookahead=num_lookahead)


def scripted(runner: ScriptedRunner, limits: Limits, num_lookahead: int = 7) -> ParallelDraft:
    return ParallelDraft(runner, replace(limits, num_lookahead=num_lookahead), token_choice(), SCRIPTED_MASK)


def setup(**options: object) -> Setup:
    return Setup(proposer=scripted, proposers=(NAME,), **options)  # type: ignore[arg-type]


def likeliest(context: Sequence[int], count: int) -> list[int]:
    """The block that greedy drafting makes after a context."""
    return [int(context_logits([*context, *[SCRIPTED_MASK] * i]).argmax()) for i in range(count)]


def drawn_ids(tokens: Sequence[DraftToken]) -> list[int]:
    return [token.token_id for token in tokens if token.kind is not LawKind.ASSUMED]


def test_a_path_and_a_branch_each_take_one_pass() -> None:
    made = setup()
    made.open(request(temperature=0.0, proposers=(NAME,), fan_out=0))
    (trunk,) = made.drafts()
    assert drawn_ids(trunk.tokens) == likeliest([1, 2, 3, 4, 5], 3)
    assert len(made.runner.forwards) == 1
    made = setup()
    made.open(request(temperature=0.0, proposers=(NAME,), fan_out=6))
    trunk, *branches = made.drafts()
    assert len(branches) == 6
    assert len(made.runner.forwards) <= 3  # the path; its own KV; the branches
    for branch in branches:
        context = [1, 2, 3, 4, 5, *(token.token_id for token in branch.tokens if token.kind is LawKind.ASSUMED)]
        assert drawn_ids(branch.tokens) == likeliest(context, 3)


def test_a_block_longer_than_one_pass_takes_several() -> None:
    made = Setup(proposer=partial(scripted, num_lookahead=1), proposers=(NAME,))
    made.open(request(temperature=0.0, proposers=(NAME,), fan_out=0, num_draft_tokens=5))
    (trunk,) = made.drafts()
    assert len(trunk.tokens) == 5
    assert [len(chunks[0].token_ids) for chunks in made.runner.forwards] == [5 + 1, 2 + 1, 2]


@pytest.mark.parametrize("num_blocks", [8, 24, 200])
@pytest.mark.parametrize("temperature, mode", [(0.0, RATIO), (1.0, RATIO), (1.0, COUPLED)])
def test_every_draft_is_as_fresh_passes_make_it_however_scarce_kv_is(
    temperature: float, mode: VerificationMode, num_blocks: int
) -> None:
    made = setup(num_blocks=num_blocks, max_tokens=64)
    opened = request(temperature=temperature, mode=mode, proposers=(NAME,), max_tokens=40)
    made.open(opened)
    verifier = ScriptedVerifier(opened, partial(context_logits, salt=1, spread=1.0))
    for step in range(12):
        drafts = made.drafts()
        for draft in drafts:
            context = [*verifier.committed, *(t.token_id for t in draft.tokens if t.kind is LawKind.ASSUMED)]
            drawn = [token for token in draft.tokens if token.kind is not LawKind.ASSUMED]
            if temperature == 0.0:
                assert drawn_ids(drawn) == likeliest(context, len(drawn))
            for i, token in enumerate(drawn):
                if token.law is not None:
                    best = int(token.law.token_ids[token.law.counts.argmax()])
                    assert best == likeliest(context, i + 1)[-1]
        verifier.insert(drafts)
        made.commit(verifier.commit_others(3) if step % 4 == 3 else verifier.run_pass())
    made.drafter.handle(Closed(1, 7))
    assert made.drafter.info().kv_blocks_used == 0


def test_no_mask_lies_beyond_the_models_context() -> None:
    made = setup(num_blocks=4, block_size=4, max_model_len=16)
    made.open(request(list(range(1, 11)), temperature=0.0, proposers=(NAME,), num_draft_tokens=8, fan_out=0))
    (trunk,) = made.drafts()
    assert len(trunk.tokens) == 6
    assert max(chunk.end for chunks in made.runner.forwards for chunk in chunks) == 15


NUM_SEQUENCES = 700


def nearly_the_same(context: Sequence[int], salt: int = 0) -> npt.NDArray[np.float32]:
    """Laws so alike that most drafts stand: tokens 0 to 3, of which the context moves each a little."""
    fixed = np.where(np.arange(VOCAB) < 4, 0.0, -12.0).astype(np.float32)
    return fixed + context_logits(context[-2:], salt, spread=0.3)


def first_two_tokens() -> npt.NDArray[np.int64]:
    """[4, 4] counts of what one target writes with drafts of another."""
    counts = np.zeros((4, 4), dtype=np.int64)
    for first in range(0, NUM_SEQUENCES, 50):
        made = setup(logits=nearly_the_same, max_num_seqs=50, num_blocks=400, max_tokens=1024)
        asked = [
            request(sequence_id=i, seed=i, nonce=7 * i + 1, proposers=(NAME,), fan_out=0)
            for i in range(first, first + 50)
        ]
        for one in asked:
            made.open(one)
        drafts = made.drafts()
        for one in asked:
            verifier = ScriptedVerifier(one, partial(nearly_the_same, salt=3))
            verifier.insert([draft for draft in drafts if draft.sequence_id == one.sequence_id])
            while len(verifier.committed) < 7:
                verifier.run_pass()
            counts[tuple(verifier.committed[5:7])] += 1
    return counts


def p_value(counts: npt.NDArray[np.int64]) -> float:
    def law(context: Sequence[int]) -> npt.NDArray[np.float64]:
        weights = np.exp(nearly_the_same(context, salt=3)[:4].astype(np.float64))
        normalised: npt.NDArray[np.float64] = weights / weights.sum()
        return normalised

    prompt = [1, 2, 3, 4, 5]
    expected = np.array([law(prompt)[token] * law([*prompt, token]) for token in range(4)])
    return float(stats.chisquare(counts.ravel(), expected.ravel() * counts.sum()).pvalue)


def test_the_text_follows_the_targets_law() -> None:
    assert p_value(first_two_tokens()) > 1e-3


def test_a_block_whose_tokens_share_their_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pard, "_place", lambda row, index: row)
    assert p_value(first_two_tokens()) < 1e-6
