"""`python -m drafter_svc` as a real process: it drafts over gRPC, refuses by name, fails in one clear line."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from typer.testing import CliRunner

from drafter_svc.__main__ import app
from slipstream.exchange import Commit, CommitBatch, Draft, DraftBatch, LawKind
from slipstream.request import SequenceRequest
from slipstream.text.tokenizer import Tokenizer
from slipstream.wire.commits import commit_batch_to_wire
from slipstream.wire.drafts import draft_batch_from_wire
from slipstream.wire.requests import open_to_wire
from slipstream.wire.v1 import drafter_pb2 as pb
from slipstream.wire.v1 import drafter_pb2_grpc as rpc
from slipstream.wire.v1 import exchange_pb2
from tests.drafter_svc.scripted import request
from tests.tiny_models import make_checkpoint

TIMEOUT = 30.0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("drafter") / "tiny", vocab_size=320)


def start(*options: str) -> subprocess.Popen[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "drafter_svc", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


@pytest.fixture(scope="module")
def address(model: Path) -> Iterator[str]:
    process = start("--model", str(model), "--listen", "127.0.0.1:0", "--dtype", "float32", "--num-kv-blocks", "64")
    assert process.stdout is not None
    try:
        ready, name, where = process.stdout.readline().split()
        assert (ready, name) == ("READY", "drafter")
        yield where
        process.terminate()
        _, errors = process.communicate(timeout=10)
        assert (process.returncode, "Traceback" in errors) == (0, False), errors
    finally:
        process.kill()
        process.communicate(timeout=10)


class Stream:
    """One Draft stream."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._requests: queue.SimpleQueue[pb.DraftRequest | None] = queue.SimpleQueue()
        self.responses = rpc.DrafterStub(channel).Draft(iter(self._requests.get, None), timeout=TIMEOUT)

    def open(self, opened: SequenceRequest) -> None:
        self._requests.put(pb.DraftRequest(open=open_to_wire(opened)))

    def commit(self, commit: Commit) -> None:
        self._requests.put(pb.DraftRequest(commits=commit_batch_to_wire(CommitBatch((commit,)))))

    def send(self, message: pb.DraftRequest) -> None:
        self._requests.put(message)

    def end(self) -> None:
        self._requests.put(None)

    def batch(self) -> DraftBatch:
        response = next(self.responses)
        assert response.HasField("drafts"), response
        return draft_batch_from_wire(response.drafts)

    def first_draft(self) -> Draft:
        return self.batch().drafts[0]

    def error(self) -> exchange_pb2.SequenceError:
        response = next(self.responses)
        assert response.HasField("error"), response
        return response.error


def load(channel: grpc.Channel) -> tuple[int, int]:
    """Sequences open and KV blocks in use."""
    info = rpc.DrafterStub(channel).GetModel(exchange_pb2.GetModelRequest(), timeout=TIMEOUT)
    return info.num_sequences, info.kv_blocks_used


def becomes_empty(channel: grpc.Channel) -> bool:
    deadline = time.monotonic() + 5
    while load(channel) != (0, 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    return load(channel) == (0, 0)


def test_it_drafts_answers_commits_and_frees_everything_when_the_stream_ends(address: str, model: Path) -> None:
    vocabulary = Tokenizer.from_folder(model).vocabulary_hash
    with grpc.insecure_channel(address) as channel:
        stream = Stream(channel)
        stream.open(request(vocabulary_hash=vocabulary))
        draft = stream.first_draft()
        assert (draft.sequence_id, draft.base, draft.proposer) == (7, 5, "draft_model")
        assert [token.kind for token in draft.tokens] == [LawKind.SPARSE] * 3
        branches = stream.batch()
        assert branches.draft_us > 0
        assert all(branch.tokens[0].kind is LawKind.ASSUMED for branch in branches.drafts)
        stream.commit(Commit(7, 5, (300, 301)))
        while (draft := stream.first_draft()).base != 7:
            pass
        assert draft.tokens[0].kind is LawKind.SPARSE
        assert load(channel) > (0, 0)
        stream.end()
        assert all(not response.HasField("error") for response in stream.responses)
        assert becomes_empty(channel)


def test_what_cannot_be_opened_or_read_costs_its_sequence_and_no_stream(address: str, model: Path) -> None:
    vocabulary = Tokenizer.from_folder(model).vocabulary_hash
    with grpc.insecure_channel(address) as channel:
        stream = Stream(channel)
        stream.open(request(vocabulary_hash="b" * 64))
        mismatch = stream.error()
        assert mismatch.sequence_id == 7
        assert mismatch.code == grpc.StatusCode.FAILED_PRECONDITION.value[0]
        assert "b" * 64 in mismatch.message
        assert vocabulary in mismatch.message
        broken = open_to_wire(request(vocabulary_hash=vocabulary, sequence_id=8))
        broken.token_ids = b"abc"
        stream.send(pb.DraftRequest(open=broken))
        assert (stream.error().sequence_id, load(channel)) == (8, (0, 0))
        stream.send(pb.DraftRequest())
        stream.open(request(vocabulary_hash=vocabulary, sequence_id=9))
        assert stream.first_draft().sequence_id == 9
        stream.responses.cancel()


def test_a_gateway_that_vanishes_leaves_nothing_behind(address: str, model: Path) -> None:
    vocabulary = Tokenizer.from_folder(model).vocabulary_hash
    for _ in range(5):
        with grpc.insecure_channel(address) as channel:
            stream = Stream(channel)
            stream.open(request(vocabulary_hash=vocabulary))
            stream.batch()
    with grpc.insecure_channel(address) as channel:
        assert becomes_empty(channel)


@pytest.mark.parametrize(
    "options, code, words",
    [
        (["--model", "/no/such/model"], 2, "/no/such/model"),
        (["--dtype", "int3"], 2, "int3"),
        (["--listen", "nowhere"], 2, "nowhere"),
        (["--proposer", "oracle"], 2, "oracle"),
        (["--num-kept", "0"], 2, "num_kept"),
        (["--log-level", "loud"], 2, "loud"),
        (["--adapter", "legal"], 2, "NAME=FOLDER"),
        (["--adapters-dir", "/no/such/folder"], 2, "/no/such/folder"),
    ],
)
def test_what_an_operator_can_mend_is_one_line(model: Path, options: list[str], code: int, words: str) -> None:
    result = CliRunner().invoke(app, ["--model", str(model), *options])  # a later option of one name wins
    assert result.exit_code == code
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert words in line


def test_help_names_every_option() -> None:
    result = CliRunner().invoke(app, ["--help"], terminal_width=200)
    assert result.exit_code == 0
    assert all(option in result.stdout for option in ("--model", "--listen", "--max-rows", "--num-kept"))


def test_a_mistake_ends_the_process_with_its_code_and_no_traceback() -> None:
    process = start("--model", "/no/such/model")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "Traceback" not in errors
