"""Bad input gets a precise status and changes nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import run
from typing import Any

import grpc
import pytest

from slipstream.config import service_environment
from slipstream.wire.v1 import generation_pb2 as pb
from tests.e2e.cluster import Client, Cluster, request
from tests.tiny_models import make_checkpoint

PROMPT = [5, 6, 7]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("bad")
    with Cluster(folder) as cluster:
        cluster.verifier(make_checkpoint(folder / "target"), "--max-model-len", "64")
        cluster.gateway([{"name": "someone", "proposers": ["ngram"]}])
        yield cluster


@pytest.mark.parametrize(
    ("bad", "status", "words"),
    [
        (request([]), "INVALID_ARGUMENT", ["prompt", "empty"]),
        (request(PROMPT * 30), "INVALID_ARGUMENT", ["90", "64"]),
        (request(PROMPT, temperature=-1), "INVALID_ARGUMENT", ["temperature", "-1"]),
        (request(PROMPT, temperature=float("nan")), "INVALID_ARGUMENT", ["temperature", "nan"]),
        (request(PROMPT, top_p=0), "INVALID_ARGUMENT", ["top_p", "(0, 1]"]),
        (request(PROMPT, top_p=1.5), "INVALID_ARGUMENT", ["top_p", "1.5"]),
        (request(PROMPT, min_p=-0.5), "INVALID_ARGUMENT", ["min_p", "-0.5"]),
        (request(PROMPT, max_tokens=0), "INVALID_ARGUMENT", ["max_tokens", "0"]),
        (request(PROMPT, stop=[""]), "INVALID_ARGUMENT", ["stop"]),
        (request(PROMPT, repetition_penalty=0), "INVALID_ARGUMENT", ["repetition_penalty", "0.0", "[0.01, 100.0]"]),
        (request(PROMPT, frequency_penalty=3), "INVALID_ARGUMENT", ["frequency_penalty", "3.0", "[-2.0, 2.0]"]),
        (request(PROMPT, logit_bias={100000: 1}), "INVALID_ARGUMENT", ["logit_bias", "100000"]),
        (request(PROMPT, min_tokens=9, max_tokens=8), "INVALID_ARGUMENT", ["min_tokens", "9", "0..8"]),
        (request(PROMPT, allowed_token_ids=[9], bad_words=[pb.TokenIds(ids=[9])]), "INVALID_ARGUMENT", ["no token is"]),
        (request(PROMPT, model="other"), "NOT_FOUND", ["other"]),
        (request([5, 100000]), "INVALID_ARGUMENT", ["100000"]),
        (request([5, -1]), "INVALID_ARGUMENT", ["-1"]),
        (pb.GenerateRequest(), "INVALID_ARGUMENT", ["prompt"]),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_a_bad_request_is_refused_by_name_and_range(
    cluster: Cluster, bad: pb.GenerateRequest, status: str, words: list[str]
) -> None:
    async with cluster.client("someone") as client:
        error = await refusal(client, bad)
        assert error.code().name == status
        assert all(word in (error.details() or "") for word in words), error.details()
        assert len((await client.generate(request(PROMPT, max_tokens=3, ignore_eos=True))).token_ids) == 3


@pytest.mark.parametrize("key", ["", "nobody"])
async def test_an_unknown_key_is_unauthenticated(cluster: Cluster, key: str) -> None:
    async with cluster.client(key) as client:
        error = await refusal(client, request(PROMPT, max_tokens=1))
    assert error.code() is grpc.StatusCode.UNAUTHENTICATED


async def refusal(client: Client, bad: pb.GenerateRequest) -> Any:
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await client.generate(bad)
    return failure.value


def corrupt(model: Path) -> None:
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])


def remove_config(model: Path) -> None:
    (model / "config.json").unlink()


@pytest.mark.parametrize(("harm", "file"), [(corrupt, "model.safetensors"), (remove_config, "config.json")])
@pytest.mark.parametrize("service", ["verifier_svc", "drafter_svc"])
def test_a_broken_checkpoint_is_one_line_that_names_the_file(
    tmp_path: Path, harm: Any, file: str, service: str
) -> None:
    model = make_checkpoint(tmp_path / "model")
    harm(model)
    command = [sys.executable, "-m", service, "--model", str(model), "--listen", "127.0.0.1:0"]
    ended = run(command, capture_output=True, text=True, timeout=60, env=service_environment(1), check=False)
    assert ended.returncode != 0
    assert "Traceback" not in ended.stderr
    assert file in ended.stderr.strip().splitlines()[-1]
