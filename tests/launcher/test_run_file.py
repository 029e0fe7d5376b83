"""Who runs where, written down and found again."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.processes import Processes
from launcher.run_file import Listed, path_of, read, written
from launcher.stack import Service, ServiceSpec, Stack


@pytest.fixture
def stack() -> Stack:
    with Processes() as processes:
        process = processes.start("gateway", ["true"], {})
    spec = ServiceSpec(kind="gateway", name="gateway", module="gateway", listen="h:1", metrics="h:2", options=())
    return Stack((Service(spec, process),))


def test_services_are_found_by_their_gateway_for_as_long_as_they_run(tmp_path: Path, stack: Stack) -> None:
    folder = tmp_path / "absent" / "run"
    with written(folder, stack):
        assert read(folder, "h:1") == [Listed(name="gateway", address="h:1", metrics="h:2", kind="gateway")]
        assert read(folder, "h:2") == []
    assert read(folder, "h:1") == []
    assert list(folder.iterdir()) == []


def test_a_drafter_in_its_verifiers_process_is_listed_too(tmp_path: Path, stack: Stack) -> None:
    spec = ServiceSpec(
        kind="verifier", name="verifier2", module="m", listen="h:3", metrics="h:4", options=(),
        drafter_options=("--model", "draft"), drafter_metrics="h:5",
    )  # fmt: skip
    both = Service(spec, stack.services[0].process)
    with written(tmp_path, Stack((both, *stack.services))):
        assert [(one.name, one.address, one.metrics) for one in read(tmp_path, "h:1")] == [
            ("verifier2", "h:3", "h:4"),
            ("drafter2", "h:3", "h:5"),
            ("gateway", "h:1", "h:2"),
        ]


def test_a_folder_that_cannot_be_written_is_no_failure(tmp_path: Path, stack: Stack) -> None:
    (tmp_path / "file").write_text("")
    with written(tmp_path / "file", stack):
        assert read(tmp_path / "file", "h:1") == []


@pytest.mark.parametrize("content", ["", "[]", '{"services": [3]}', '{"services": [{"name": "x", "odd": 1}]}'])
def test_a_file_that_is_damaged_says_nothing(tmp_path: Path, content: str) -> None:
    path_of(tmp_path, "h:1").write_text(content)
    assert read(tmp_path, "h:1") == []
