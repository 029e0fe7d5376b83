"""What the host of both services makes of its command line."""

from __future__ import annotations

import pytest

from drafter_svc.config import MANY
from launcher.host import configurations
from tests.tiny_models import make_checkpoint


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_checkpoint(tmp_path_factory.mktemp("model")))


@pytest.mark.parametrize(
    "devices, given, expected",
    [
        (("cuda", "cuda"), (), (1, 12)),
        (("cuda", "cuda"), ("--most-ahead", "8"), (8, 12)),
        (("cuda:0", "cuda:1"), (), (MANY, MANY)),
        (("cpu", "cpu"), (), (MANY, MANY)),
    ],
)
def test_a_drafter_on_its_verifiers_gpu_runs_ahead_and_drafts_for_fewer(
    model: str, devices: tuple[str, str], given: tuple[str, ...], expected: tuple[int, int]
) -> None:
    words = ["--model", model, "--device", devices[0], "+", "--model", model, "--device", devices[1], *given]
    _, drafter = configurations(words)
    assert (drafter.most_ahead, drafter.most_drafted) == expected


def test_without_two_services_it_ends(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        configurations(["--model", model])
    assert "'+'" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["+"], ["--model", ".", "+"], ["--model", ".", "+", "--model", ".", "more"]])
def test_what_a_service_does_not_know_or_lacks_ends_it_as_it_ends_the_service(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        configurations(words)
    assert ended.value.code == 2
    assert "Error" in capsys.readouterr().err
