"""What training measures of a head offline is, token for token, what the services reach with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from slipstream.models.eagle3_checkpoint import save_eagle3
from slipstream.models.loader import load_model
from slipstream.text.tokenizer import Tokenizer
from slipstream.training import slices
from slipstream.training.chat_frame import ChatFrame
from slipstream.training.eagle3 import Eagle3Training
from slipstream.training.eagle3_agreement import agreements
from slipstream.training.generate import Prompt, WritingSettings, write_chats
from slipstream.training.held_out import HeldOut
from slipstream.training.settings import Eagle3Settings
from tests.e2e.cluster import Client, Cluster, request
from tests.tiny_models import make_checkpoint

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
TOKENS = torch.arange(300)
LENGTH, NUM_TOKENS, K = 48, 30, 3
SETTINGS = Eagle3Settings(
    draft_vocab_size=300, unroll_steps=3, train_tokens=60 * 8 * LENGTH, batch=8, loss_chunk=512, num_draft_tokens=K
)
TENANT = {"name": "eagle3", "proposers": ["eagle3"], "num_draft_tokens": K, "fan_out": 0, "max_wait_ms": 1000}


def trained(folder: Path, head: Path) -> tuple[HeldOut, npt.NDArray[np.bool_]]:
    """Stores a head in `head`. The target's answers, and where the head's drafts agree with them."""
    target = load_model(folder, torch.float32, CPU)
    frame = ChatFrame.of(Tokenizer.from_folder(folder))
    prompts = [Prompt(frame.question((60 + i % 30, 61 + i % 7, 70 + i % 11)), answering=True) for i in range(64)]
    writing = WritingSettings(length=LENGTH, answer_temperatures=(0.0, 0.5), max_answer_tokens=40)
    chats = write_chats(target, frame, prompts, writing, torch.Generator().manual_seed(1))
    held_out = HeldOut.written_by(target, frame, [(100 + i, 101 + 3 * i, 90) for i in range(4)], NUM_TOKENS)
    training = Eagle3Training(target, TOKENS, chats, SETTINGS)
    slices.run(training, 100.0, held_out, lambda progress: None, every=1000.0)
    save_eagle3(head, training.head.config, training.master.weights, TOKENS, torch.float32)
    return held_out, agreements(training.head, target, TOKENS, held_out.token_ids, K)


@dataclass(frozen=True)
class Passes:
    drafted: int
    undrafted: int  # the prompt's own; the last too, if one token was left: that is the verifier's own
    accepted: list[int]  # at each place


def expected(matches: npt.NDArray[np.bool_]) -> Passes:
    position, drafted, undrafted, accepted = 1, 0, 1, [0] * K
    while position < NUM_TOKENS:
        window = matches[position, : min(K, NUM_TOKENS - position - 1)].tolist()
        run = [*window, False].index(False)
        drafted, undrafted = drafted + bool(window), undrafted + (not window)
        for place in range(run):
            accepted[place] += 1
        position += run + 1
    return Passes(drafted, undrafted, accepted)


async def reached(client: Client, prompt: list[int], answer: list[int], undrafted: int) -> Passes:
    """Of a run in which no draft came too late."""
    for _ in range(20):
        got = await client.generate(request(prompt, temperature=0.0, max_tokens=NUM_TOKENS, ignore_eos=True))
        assert got.token_ids == answer
        usage = got.last.usage
        if usage.num_passes - usage.num_drafts == undrafted:
            return Passes(usage.num_drafts, undrafted, list(usage.accepted_per_position))
    raise AssertionError("in twenty answers some draft was late")


async def test_acceptance_offline_is_acceptance_through_the_services(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "target", layers=4, tie_word_embeddings=True, max_position_embeddings=2048)
    head = tmp_path / "head"
    held_out, matches = trained(folder, head)
    with Cluster(tmp_path) as cluster:
        cluster.verifier(folder, "--features", str(head), module="tests.e2e.patient_verifier")
        cluster.drafter(head, "--target-model", str(folder), "--proposer", "eagle3")
        cluster.gateway([TENANT])
        async with cluster.client("eagle3") as client:
            for row, agree, (first, end) in zip(held_out.token_ids.tolist(), matches, held_out.spans, strict=True):
                assert end - first == NUM_TOKENS, "an answer that the target ended early"
                wanted = expected(agree[first:end])
                assert sum(wanted.accepted) > NUM_TOKENS // 3, "too few drafts stand to tell anything"
                assert await reached(client, row[:first], row[first:end], wanted.undrafted) == wanted
