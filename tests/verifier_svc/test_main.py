"""The verifier as a real process, spoken to over the network."""

import os
import signal
import subprocess
import sys
import time

import grpc
import pytest
from typer.testing import CliRunner

from slipstream.exchange import Draft, DraftBatch, DraftToken, LawKind
from slipstream.request import FinishReason, SamplingParams, SequenceRequest, VerificationMode
from slipstream.text.tokenizer import Tokenizer
from slipstream.wire.commits import commit_from_wire
from slipstream.wire.drafts import draft_batch_to_wire
from slipstream.wire.model_info import model_info_from_wire
from slipstream.wire.requests import open_to_wire
from slipstream.wire.v1 import exchange_pb2, verifier_pb2, verifier_pb2_grpc
from tests.tiny_models import make_checkpoint
from verifier_svc.__main__ import app

SECONDS = 60
PROMPT = (5, 6, 7, 8, 9)


def command(*options):
    return [sys.executable, "-m", "verifier_svc", *map(str, options)]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("models") / "tiny", seed=3)


@pytest.fixture(scope="module")
def service(checkpoint):
    """The address of a verifier process."""
    options = ("--model", checkpoint, "--listen", "127.0.0.1:0", "--dtype", "float32", "--num-kv-blocks", 64)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command(*options), stdout=subprocess.PIPE, text=True, env=environment)
    try:
        ready, name, address = process.stdout.readline().split()
        assert (ready, name) == ("READY", "verifier")
        yield address
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def stub(service):
    with grpc.insecure_channel(service) as channel:
        yield verifier_pb2_grpc.VerifierStub(channel)


def open_request(sequence_id=1, token_ids=PROMPT, *, max_tokens=8, **options):
    sampling = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
    request = SequenceRequest(
        sequence_id=sequence_id,
        token_ids=token_ids,
        num_prompt_tokens=len(token_ids),
        sampling=sampling,
        mode=VerificationMode.RATIO,
        proposers=("draft_model",),
        num_draft_tokens=4,
        **options,
    )
    return verifier_pb2.VerifyRequest(open=open_to_wire(request))


def draft_request(base, token_ids, sequence_id=1):
    tokens = tuple(DraftToken(token_id, LawKind.ONE_HOT) for token_id in token_ids)
    batch = DraftBatch((Draft(sequence_id, base, "draft_model", 0, tokens),))
    return verifier_pb2.VerifyRequest(drafts=draft_batch_to_wire(batch))


def converse(stub, *requests):
    """Sends all, closes the sending side and reads to the end: commits by sequence, and errors."""
    commits, errors = {}, {}
    for response in stub.Verify(iter(requests), timeout=SECONDS):
        for message in response.commits.commits:
            commit = commit_from_wire(message)
            commits.setdefault(commit.sequence_id, []).append(commit)
        if response.HasField("error"):
            errors[response.error.sequence_id] = response.error
    return commits, errors


def text_of(commits):
    return [token_id for commit in commits for token_id in commit.token_ids]


def kv_blocks_used(stub):
    return stub.GetModel(exchange_pb2.GetModelRequest(), timeout=SECONDS).kv_blocks_used


def test_a_sequence_runs_to_its_end_with_and_without_drafts(stub):
    plain, _ = converse(stub, open_request())
    truth = text_of(plain[1])
    assert len(truth) == 8
    assert plain[1][-1].finish_reason is FinishReason.LENGTH
    drafted, _ = converse(stub, open_request(), draft_request(len(PROMPT), truth[:-1]))
    assert text_of(drafted[1]) == truth


def test_drafts_that_arrive_in_time_are_accepted(stub):
    truth = text_of(converse(stub, open_request(max_tokens=16))[0][1])
    responses = converse(stub, open_request(max_tokens=16, max_wait_us=5_000_000), draft_request(len(PROMPT), truth))
    commits = responses[0][1]
    assert text_of(commits) == truth
    assert sum(commit.num_accepted for commit in commits) >= 8


def test_one_bad_sequence_does_not_end_the_stream(stub):
    unset_mode = open_request(4)
    unset_mode.open.mode = 0
    commits, errors = converse(
        stub,
        open_request(1),
        open_request(2, (5, 99_999)),
        open_request(3, (5,) * 600),
        unset_mode,
        verifier_pb2.VerifyRequest(update=exchange_pb2.Update(sequence_id=77)),
        open_request(5),
    )
    assert {sequence_id: len(text_of(said)) for sequence_id, said in commits.items()} == {1: 8, 5: 8}
    assert set(errors) == {2, 3, 4}
    assert {error.code for error in errors.values()} == {grpc.StatusCode.INVALID_ARGUMENT.value[0]}
    assert "600 tokens and the context 512" in errors[3].message


def test_a_broken_stream_frees_its_kv(stub):
    before = kv_blocks_used(stub)
    requests = iter([open_request(i, max_tokens=400) for i in range(4)])
    call = stub.Verify(requests, timeout=SECONDS)
    next(call)
    assert kv_blocks_used(stub) > before
    call.cancel()
    deadline = time.monotonic() + 10
    while kv_blocks_used(stub) != before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert kv_blocks_used(stub) == before
    assert stub.GetModel(exchange_pb2.GetModelRequest(), timeout=SECONDS).num_sequences == 0


def test_it_says_what_it_serves(stub, checkpoint):
    info = model_info_from_wire(stub.GetModel(exchange_pb2.GetModelRequest(), timeout=SECONDS))
    assert (info.name, info.vocab_size, info.max_model_len, info.stop_token_ids) == ("tiny", 320, 512, (2,))
    assert (info.dtype, info.device, info.kv_blocks_total, info.kv_block_size) == ("float32", "cpu", 64, 16)
    assert info.vocabulary_hash == Tokenizer.from_folder(checkpoint).vocabulary_hash


def test_the_tokenizer_can_be_fetched_and_is_not_sent_to_who_has_it(stub, checkpoint):
    ours = Tokenizer.from_folder(checkpoint)
    files = {}
    for chunk in stub.GetTokenizer(verifier_pb2.GetTokenizerRequest(), timeout=SECONDS):
        files[chunk.file_name] = files.get(chunk.file_name, b"") + chunk.data
    assert Tokenizer.from_files(files).content_hash == ours.content_hash
    again = stub.GetTokenizer(verifier_pb2.GetTokenizerRequest(known_hash=ours.content_hash), timeout=SECONDS)
    assert list(again) == []


@pytest.fixture
def cli():
    """Runs the command in this process: starting one more takes seconds."""
    return lambda *options: CliRunner().invoke(app, [str(option) for option in options])


def test_help_names_every_option(cli):
    result = cli("--help")
    assert result.exit_code == 0
    for option in ("--model", "--listen", "--max-waiting", "--no-ngram-fallback", "--num-kv-blocks", "--dtype"):
        assert option in result.stdout


@pytest.mark.parametrize(
    "options, text",
    [
        (("--dtype", "float8"), "dtype is 'float8'"),
        (("--log-level", "loud"), "log-level is 'loud'"),
        (("--max-waiting", -1), "max_waiting is -1"),
        (("--listen", "nowhere"), "listen is 'nowhere'"),
        (("--max-num-batched-tokens", 8), "max_num_batched_tokens is 8"),
        (("--max-model-len", 9999), "max_model_len is 9999"),
    ],
)
def test_a_bad_option_is_one_clear_line(cli, checkpoint, options, text):
    result = cli("--model", checkpoint, *options)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("error: ")
    assert text in result.stderr


def test_a_truncated_checkpoint_is_named_in_one_line(cli, tmp_path):
    folder = make_checkpoint(tmp_path / "cut")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    result = cli("--model", folder)
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert str(weights) in result.stderr


def test_a_model_that_does_not_exist_ends_the_process_with_one_line():
    result = subprocess.run(
        command("--model", "/nonexistent/model"), capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert result.returncode == 2
    assert result.stderr.splitlines() == [
        "error: model is /nonexistent/model, which does not exist; give a folder or a .gguf file"
    ]
