"""The words of the proposer protocol, and the factory."""

from __future__ import annotations

from pathlib import Path

import pytest

from drafter_svc.config import DrafterConfig
from drafter_svc.proposers import NAMES, make_proposer
from drafter_svc.proposers.proposer import Drawing, Row
from slipstream.config import EngineConfig
from slipstream.request import SamplingParams, VerificationMode
from tests.models.eagle3_heads import make_head
from tests.tiny_models import make_checkpoint


def drawing(temperature: float, mode: VerificationMode) -> Drawing:
    return Drawing(sampling=SamplingParams(temperature=temperature), mode=mode, seed=1, draft_key=2, sample_index=0)


@pytest.mark.parametrize(
    "temperature, mode, carries_law",
    [
        (1.0, VerificationMode.RATIO, True),
        (0.0, VerificationMode.RATIO, False),
        (1.0, VerificationMode.COUPLED, False),
        (0.0, VerificationMode.COUPLED, False),
    ],
)
def test_only_sampled_drafts_in_ratio_mode_carry_their_law(
    temperature: float, mode: VerificationMode, carries_law: bool
) -> None:
    assert drawing(temperature, mode).carries_law is carries_law


def test_a_rows_end_is_where_its_first_draft_token_stands() -> None:
    row = Row(
        token_ids=[1, 2],
        start=5,
        block_ids=[0],
        drawing=drawing(1.0, VerificationMode.RATIO),
        draw=0,
        num_wanted=1,
        num_outcomes=1,
    )
    assert row.end == 7


def test_every_name_makes_a_proposer_and_no_other_does(tmp_path: Path) -> None:
    model = make_checkpoint(tmp_path / "tiny", pard_token=3)
    folders = dict.fromkeys(NAMES, model) | {"eagle3": make_head(tmp_path / "head")}
    for name in NAMES:
        engine = EngineConfig(model=folders[name], dtype="float32", num_kv_blocks=8)
        assert make_proposer(DrafterConfig(engine=engine, proposer=name), 320).limits.num_blocks == 8
    with pytest.raises(ValueError, match=r"oracle.*draft_model"):
        make_proposer(DrafterConfig(engine=engine, proposer="oracle"), 320)
