"""ghz's configuration files: every one here names methods and fields that exist."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pool

from bench.ghz_config import Step, load_config, seconds

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "loadtest").glob("*.json"))
GOOD: dict[str, Any] = {
    "host": "h:1",
    "call": "slipstream.v1.Generation/GenerateOnce",
    "data": {"request_id": "a-{{.RequestNumber}}"},
    "total": 1,
    "concurrency": 1,
    "timeout": "1s",
}


def write(folder: Path, **fields: Any) -> Path:
    file = folder / "load.json"
    file.write_text(json.dumps(GOOD | fields))
    return file


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_configuration_names_a_method_and_fields_that_exist(file: Path) -> None:
    config = load_config(file)
    assert config.request(3) != config.request(4) or config.method.name == "ModelInfer"
    assert config.total >= config.concurrency  # ghz refuses fewer


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_proto_file_is_the_one_that_has_the_method(file: Path) -> None:
    fields = json.loads(file.read_text())
    if "proto" in fields:
        assert (ROOT / fields["proto"]).is_file()
        (folder,) = fields["import-paths"]
        inside = Path(fields["proto"]).relative_to(folder).as_posix()
        assert descriptor_pool.Default().FindMethodByName(fields["call"]).containing_service.file.name == inside


def test_there_is_one_for_each_way_to_ask() -> None:
    assert {file.stem for file in FILES} == {"unary", "streaming", "reflection", "ramp", "kserve"}
    assert load_config(ROOT / "loadtest" / "streaming.json").method.server_streaming
    assert not load_config(ROOT / "loadtest" / "unary.json").method.server_streaming


def test_requests_are_numbered(tmp_path: Path) -> None:
    config = load_config(write(tmp_path))
    assert config.path == "/slipstream.v1.Generation/GenerateOnce"
    assert getattr(config.request(7), "request_id") == "a-7"  # noqa: B009 -- a field of any message


def test_steps_end_at_the_longest_time(tmp_path: Path) -> None:
    schedule = {"load-schedule": "step", "load-start": 1, "load-end": 9, "load-step": 4, "load-step-duration": "10s"}
    config = load_config(write(tmp_path, **schedule, **{"load-max-duration": "25s"}))
    assert config.steps == (Step(1, 10.0), Step(5, 10.0), Step(9, 5.0))


@pytest.mark.parametrize(("text", "expected"), [("500ms", 0.5), ("10s", 10.0), ("1.5s", 1.5), ("2m", 120.0)])
def test_durations_have_units(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"call": "slipstream.v1.Generation.Guess"}, "Guess"),
        ({"data": {"prompt": {"texts": "a"}}}, "texts"),
        ({"qps": 3}, "'qps' is no setting that is known here"),
        ({"timeout": "soon"}, "duration 'soon' is none"),
        ({"load-schedule": "line"}, "load-schedule is 'line'"),
    ],
)
def test_what_is_not_there_is_named(tmp_path: Path, fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        load_config(write(tmp_path, **fields))
