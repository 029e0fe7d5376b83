"""Who leads and who follows. Whole crews are in tests/verifier_svc/test_tensor_parallel.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.config import EngineConfig, torchrun
from slipstream.parallel.crew import ONE_PROCESS, TorchrunCrew, follows, make_crew
from slipstream.parallel.joining import Place


def config(size: int, device: str = "cpu") -> EngineConfig:
    return EngineConfig(model=Path(), device=device, tensor_parallel_size=size)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """As rank 0 of eight, four on each of two machines."""
    variables = {"RANK": "0", "WORLD_SIZE": "8", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "4"}
    for name, value in {"TORCHELASTIC_RUN_ID": "run", **variables}.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_one_process_needs_no_crew() -> None:
    assert torchrun() is None
    assert make_crew(config(1)) is ONE_PROCESS
    assert not follows(config(2))


def test_rank_0_of_torchruns_leads(started: pytest.MonkeyPatch) -> None:
    assert isinstance(make_crew(config(8)), TorchrunCrew)
    assert not follows(config(8))


def test_another_number_of_ranks_than_torchrun_has_started_is_refused(started: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="tensor_parallel_size is 2, but torchrun has started 8 ranks"):
        make_crew(config(2))
    started.setenv("RANK", "3")
    with pytest.raises(ValueError, match="torchrun has started 8 ranks"):
        follows(config(1))


def test_each_rank_takes_the_gpu_of_its_number_on_its_machine() -> None:
    place = Place(rank=5, size=8, local_rank=1, one_machine=False)
    assert place.own(config(8, "cuda")).device == "cuda:1"
    assert place.own(config(8)).device == "cpu"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tensor_parallel_size": 0}, "tensor_parallel_size is 0; it must be >= 1"),
        ({"tensor_parallel_size": 2, "device": "cuda:1"}, "device is 'cuda:1' and tensor_parallel_size 2"),
        ({"all_reduce": "fast"}, "all_reduce is 'fast'; it must be one of symmetric, group"),
    ],
)
def test_settings_that_cannot_be_are_named(options: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError) as error:
        EngineConfig(model=Path(), **options)
    assert str(error.value).startswith(said)
