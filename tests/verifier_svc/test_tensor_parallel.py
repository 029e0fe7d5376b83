"""A verifier whose model two processes hold: it says what one process says, and ends whole when one of them dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from slipstream.config import EngineConfig
from slipstream.engine.loading import make_runner
from slipstream.engine.scheduler import Scheduler
from slipstream.exchange import Draft, DraftBatch, DraftToken, LawKind
from slipstream.request import SamplingParams, SequenceRequest, VerificationMode
from slipstream.text.tokenizer import Tokenizer
from slipstream.wire.commits import commit_from_wire
from slipstream.wire.drafts import draft_batch_to_wire
from slipstream.wire.requests import open_to_wire
from slipstream.wire.v1 import verifier_pb2, verifier_pb2_grpc
from tests.tiny_models import make_checkpoint
from verifier_svc.verifier import Verifier

SECONDS = 60
MAX_MODEL_LEN, NUM_DRAFT_TOKENS = 64, 4
OPTIONS = {"dtype": "float32", "num_kv_blocks": 96, "block_size": 4, "max_model_len": MAX_MODEL_LEN}
GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
SAMPLED = SamplingParams(temperature=0.9, max_tokens=12, ignore_eos=True)
LIMITED = SamplingParams(top_k=12, top_p=0.9, repetition_penalty=1.2, max_tokens=12, ignore_eos=True)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    entries = {"hidden": 48, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 16}
    return make_checkpoint(tmp_path_factory.mktemp("model") / "tiny", seed=3, logit_std=3.0, **entries)


def start(checkpoint: Path, *options: str) -> subprocess.Popen[str]:
    settings = [f"--{name.replace('_', '-')}={value}" for name, value in OPTIONS.items()]
    command = ["-m", "verifier_svc", f"--model={checkpoint}", "--listen=127.0.0.1:0", *settings, *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, *command], env=environment, **pipes)


def address_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    ready, name, address = process.stdout.readline().split()
    assert (ready, name) == ("READY", "verifier")
    return address


def ranks_of(process: subprocess.Popen[str]) -> list[int]:
    """The processes that it has started to hold a part of the model."""
    return [pid for pid in children(process.pid) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def children(pid: int) -> list[int]:
    """Of all its threads."""
    lists = [task / "children" for task in Path(f"/proc/{pid}/task").iterdir()]
    return [int(child) for children in lists for child in children.read_text().split()]


@pytest.fixture(scope="module")
def service(checkpoint: Path) -> Iterator[subprocess.Popen[str]]:
    process = start(checkpoint, "--tensor-parallel-size=2")
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def stub(service: subprocess.Popen[str]) -> Iterator[verifier_pb2_grpc.VerifierStub]:
    with grpc.insecure_channel(address_of(service)) as channel:
        yield verifier_pb2_grpc.VerifierStub(channel)


def request(sequence_id: int, prompt: list[int], sampling: SamplingParams, mode: VerificationMode) -> SequenceRequest:
    return SequenceRequest(
        sequence_id=sequence_id,
        token_ids=tuple(prompt),
        num_prompt_tokens=len(prompt),
        sampling=sampling,
        mode=mode,
        seed=77,
        proposers=("draft_model",),
        num_draft_tokens=NUM_DRAFT_TOKENS,
    )


def requests() -> list[SequenceRequest]:
    """Of every law and mode, and prompts that leave room for 0, 1, K - 1, K and K + 1 tokens."""
    laws = [(sampling, mode) for sampling in (GREEDY, SAMPLED, LIMITED) for mode in VerificationMode]
    short = [request(i, [5, 6, 7, 8, 9 + i], *law) for i, law in enumerate(laws, start=1)]
    rooms = (1, NUM_DRAFT_TOKENS - 1, NUM_DRAFT_TOKENS, NUM_DRAFT_TOKENS + 1)
    long = [
        request(20 + room, [(7 * i) % 300 + 3 for i in range(MAX_MODEL_LEN - room)], GREEDY, VerificationMode.RATIO)
        for room in rooms
    ]
    return [*short, *long]


def drafts_of(sequence_id: int, base: int, token_ids: list[int]) -> DraftBatch:
    tokens = tuple(DraftToken(token_id, LawKind.ONE_HOT) for token_id in token_ids)
    return DraftBatch((Draft(sequence_id, base, "draft_model", 0, tokens),))


def texts_of_one_process(checkpoint: Path) -> dict[int, list[int]]:
    engine = EngineConfig(model=checkpoint, **OPTIONS)
    scheduler = Scheduler(max_num_seqs=64, max_num_batched_tokens=512, max_waiting=64)
    verifier = Verifier(make_runner(engine), Tokenizer.from_folder(checkpoint), scheduler)
    for one in requests():
        verifier.handle((1, one))
    texts: dict[int, list[int]] = {}
    while len(verifier.sequences):
        for output in verifier.step() or []:
            for commit in output.commits.commits:
                texts.setdefault(commit.sequence_id, []).extend(commit.token_ids)
    return texts


def texts_of(stub: verifier_pb2_grpc.VerifierStub, drafts: dict[int, list[int]]) -> tuple[dict[int, list[int]], int]:
    """What is said, and how many drafts were accepted."""
    opened = [verifier_pb2.VerifyRequest(open=open_to_wire(one)) for one in requests()]
    drafted = [
        verifier_pb2.VerifyRequest(
            drafts=draft_batch_to_wire(drafts_of(one.sequence_id, len(one.token_ids), drafts[one.sequence_id][:-1]))
        )
        for one in requests()
        if drafts.get(one.sequence_id, [])[:-1] and one.mode is VerificationMode.COUPLED
    ]
    texts: dict[int, list[int]] = {}
    num_accepted = 0
    for response in stub.Verify(iter([*opened, *drafted]), timeout=SECONDS):
        for commit in response.commits.commits:
            texts.setdefault(commit.sequence_id, []).extend(commit_from_wire(commit).token_ids)
            num_accepted += commit.num_accepted
    return texts, num_accepted


def test_two_ranks_say_what_one_says_with_and_without_drafts(
    checkpoint: Path, stub: verifier_pb2_grpc.VerifierStub
) -> None:
    expected = texts_of_one_process(checkpoint)
    assert [len(expected[20 + room]) for room in (1, 3, 4, 5)] == [1, 3, 4, 5]
    assert texts_of(stub, {})[0] == expected
    assert texts_of(stub, expected)[0] == expected


def test_a_prompt_that_fills_the_context_is_refused_and_nothing_hangs(stub: verifier_pb2_grpc.VerifierStub) -> None:
    full = request(1, [7] * MAX_MODEL_LEN, GREEDY, VerificationMode.RATIO)
    opened = verifier_pb2.VerifyRequest(open=open_to_wire(full))
    (response,) = stub.Verify(iter([opened]), timeout=SECONDS)
    assert response.error.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]


def check_death_of_a_rank(process: subprocess.Popen[str]) -> None:
    """Kills it and waits for the end of all."""
    (rank,), others = ranks_of(process), children(process.pid)
    os.kill(rank, signal.SIGKILL)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert errors.splitlines()[-1].endswith("verifier stopped: rank 1 of 2 was ended by signal 9")
    wait_for_end(others)


def wait_for_end(pids: list[int]) -> None:
    deadline = time.monotonic() + SECONDS
    while (left := [pid for pid in pids if runs(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


def runs(pid: int) -> bool:
    """Whether there is such a process that does not only wait to be buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_rank_that_is_killed_ends_the_service_with_its_name_and_leaves_no_process(
    service: subprocess.Popen[str], stub: verifier_pb2_grpc.VerifierStub
) -> None:
    """`stub`: it serves."""
    check_death_of_a_rank(service)


@pytest.mark.slow
def test_a_rank_that_is_killed_in_the_middle_of_a_step_ends_the_service_likewise(checkpoint: Path) -> None:
    process = start(checkpoint, "--tensor-parallel-size=2", "--max-model-len=512")
    try:
        with grpc.insecure_channel(address_of(process)) as channel:
            long = SamplingParams(temperature=0.0, max_tokens=300, ignore_eos=True)
            opened = open_to_wire(request(1, [5, 6, 7], long, VerificationMode.RATIO))
            call = verifier_pb2_grpc.VerifierStub(channel).Verify(iter([verifier_pb2.VerifyRequest(open=opened)]))
            next(call)
            check_death_of_a_rank(process)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_rank_outlives_rank_0_however_it_ends(checkpoint: Path, number: signal.Signals) -> None:
    process = start(checkpoint, "--tensor-parallel-size=3")
    address_of(process)
    others = ranks_of(process)
    assert len(others) == 2
    process.send_signal(number)
    process.communicate(timeout=SECONDS)
    assert process.returncode == (0 if number is signal.SIGTERM else -signal.SIGKILL)
    wait_for_end(others)


@pytest.mark.slow
def test_ranks_that_torchrun_starts_serve_and_end_together(checkpoint: Path) -> None:
    settings = [f"--{name.replace('_', '-')}={value}" for name, value in OPTIONS.items()]
    torchrun = [
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=2",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=localhost:0",
    ]
    served = [
        "-m",
        "verifier_svc",
        f"--model={checkpoint}",
        "--listen=127.0.0.1:0",
        "--tensor-parallel-size=2",
        *settings,
    ]
    process = subprocess.Popen(
        [sys.executable, *torchrun, *served],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        with grpc.insecure_channel(address_of(process)) as channel:
            assert texts_of(verifier_pb2_grpc.VerifierStub(channel), {})[0] == texts_of_one_process(checkpoint)
        ranks = children(process.pid)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=SECONDS)
        assert len(ranks) == 2
        assert not [pid for pid in ranks if runs(pid)]
    finally:
        process.kill()
        process.communicate()
