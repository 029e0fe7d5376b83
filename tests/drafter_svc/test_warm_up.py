"""Warming up drafts with every kind of drawing, on the smallest cache too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from drafter_svc.config import AdapterSettings, DrafterConfig
from drafter_svc.proposers import make_proposer
from drafter_svc.proposers.proposer import Proposal, Proposer, Row
from drafter_svc.service import make_drafter
from drafter_svc.warm_up import warm_up
from slipstream.config import EngineConfig
from slipstream.exchange import LawKind
from tests.models.eagle3_heads import make_head
from tests.tiny_models import make_checkpoint


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("warm") / "tiny")


def config(model: Path, **limits: int) -> DrafterConfig:
    return DrafterConfig(engine=EngineConfig(model=model, dtype="float32", **limits))  # type: ignore[arg-type]


class Recorder:
    def __init__(self, proposer: Proposer) -> None:
        self.limits, self.adapters = proposer.limits, proposer.adapters
        self.proposals: list[list[tuple[Proposal, ...]]] = []
        self._proposer = proposer

    def propose(self, rows: Sequence[Row]) -> list[tuple[Proposal, ...]]:
        self.proposals.append(self._proposer.propose(rows))
        return self.proposals[-1]

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        raise AssertionError("nothing is copied")


def test_a_prompt_and_every_kind_of_drawing_are_run(model: Path) -> None:
    recorder = Recorder(make_proposer(config(model), 320))
    warm_up(recorder)
    assert [len(proposals) for proposals in recorder.proposals] == [1, 1, 1, 1, 1, 4]
    kinds = [proposal.token.kind for (proposal,) in recorder.proposals[-1]]
    assert kinds.count(LawKind.SPARSE) == 1  # ratio mode above temperature 0 alone carries a law


def test_a_head_is_run_on_features_and_on_its_own_output(tmp_path: Path) -> None:
    head = DrafterConfig(engine=EngineConfig(model=make_head(tmp_path), dtype="float32"), proposer="eagle3")
    recorder = Recorder(make_proposer(head, 320))
    warm_up(recorder)
    assert [len(proposals) for proposals in recorder.proposals] == [1, 1, 1, 1, 1, 4]


def test_rows_with_an_adapter_are_run_where_there_is_room_for_any(model: Path) -> None:
    taking = replace(config(model), adapters=AdapterSettings(directory=model))
    recorder = Recorder(make_proposer(taking, 320))
    warm_up(recorder)
    plain, adapted = recorder.proposals[-2:]
    assert [row[0].token.token_id for row in adapted] == [row[0].token.token_id for row in plain]  # an empty slot


def test_the_smallest_cache_is_no_trouble(model: Path) -> None:
    warm_up(make_proposer(config(model, num_kv_blocks=1, block_size=1), 320))
    warm_up(make_proposer(config(model, num_kv_blocks=2, block_size=1), 320))


def test_a_drafter_is_warm_and_empty_when_it_is_made(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warmed: list[Proposer] = []
    monkeypatch.setattr("drafter_svc.service.warm_up", warmed.append)
    drafter = make_drafter(config(model))
    assert len(warmed) == 1
    assert drafter.info().kv_blocks_used == 0
