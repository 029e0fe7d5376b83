"""Steps from graphs, kernels and all, say what the CPU's references say. Interpreted, a graph is a call."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch

from slipstream.cache.kv_cache import KVCache
from slipstream.engine.buckets import make_buckets
from slipstream.engine.graph_capture import Capture, GraphCapture
from slipstream.engine.graph_runner import GraphRunner
from slipstream.engine.model_runner import ModelRunner
from slipstream.engine.successor import Branch, Successor
from slipstream.exchange import DraftToken, LawKind
from slipstream.kernels import (
    attention,
    fetch_words,
    follow_up,
    linear,
    prepare_inputs,
    rms_norm,
    rotary,
    silu_mul,
    token_mask,
    token_rules,
)
from slipstream.kernels.batch import Chunk
from slipstream.models.config import ModelConfig
from slipstream.models.llama import LlamaModel
from slipstream.request import SamplingParams, VerificationMode
from slipstream.sampling.check import SequenceCheck
from tests.engine.stories import BLOCKS, RULED, Story

BLOCK_SIZE = 16
CONFIG = ModelConfig(
    model_type="llama", vocab_size=320, hidden_size=96, intermediate_size=128, num_layers=2, num_heads=3,
    num_kv_heads=1, head_dim=32, max_position_embeddings=BLOCKS * BLOCK_SIZE, rms_norm_eps=1e-5,
)  # fmt: skip
SAMPLINGS = {
    "greedy": SamplingParams(temperature=0.0),
    "sampled": SamplingParams(temperature=0.8),
    "limited": SamplingParams(top_k=20, top_p=0.9),
    "ruled": RULED,
}


class InterpretedCapture:
    """Replays by calling, with kernels in place of references meanwhile."""

    num_bytes, is_full = 0, False

    def __init__(self) -> None:
        self.replaying = False

    def capture(self, run: Callable[[], None]) -> Callable[[], None]:
        def replay() -> None:
            self.replaying = True
            run()
            self.replaying = False

        return replay


@pytest.fixture(scope="module")
def model() -> LlamaModel:
    torch.manual_seed(0)
    model = LlamaModel(CONFIG, torch.float32)
    for name, parameter in model.named_parameters():
        parameter.data.normal_(1.0 if "norm" in name else 0.0, 0.15)
    return model


def reference(model: LlamaModel) -> ModelRunner:
    return ModelRunner(model, KVCache(model.config, 32 * BLOCKS, BLOCK_SIZE, torch.float32, torch.device("cpu")))


def graph_runner(model: LlamaModel, device: torch.device, max_num_seqs: int) -> GraphRunner:
    """With every other size left out: kernels are compiled for each."""
    cache = KVCache(model.config, 32 * BLOCKS, BLOCK_SIZE, torch.float32, device)
    capture: Capture = GraphCapture(device, 1 << 30) if device.type == "cuda" else InterpretedCapture()
    buckets = make_buckets(max_num_seqs=max_num_seqs, max_num_tokens=32 * max_num_seqs)
    buckets = tuple(bucket for bucket in buckets if bucket.num_tokens in (1, 4, 16, 64, 128, 1024))
    return GraphRunner(copy.deepcopy(model).to(device), cache, buckets=buckets, capture=capture)


def check_against_reference(
    model: LlamaModel, runner: GraphRunner, sampling: SamplingParams, mode: VerificationMode, num_steps: int
) -> None:
    on_cpu = reference(model)
    text = Story(3, 0, sampling, mode).run(on_cpu, num_steps=3 * num_steps)
    expected = Story(3, 3, sampling, mode, known=text).run(on_cpu, num_steps)
    assert Story(3, 3, sampling, mode, known=text).run(runner, num_steps) == expected


@pytest.mark.parametrize("sampling", ["greedy", "limited", "ruled"])
@torch.inference_mode()
def test_a_step_says_what_the_reference_says(
    model: LlamaModel, device: torch.device, sampling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = graph_runner(model, device, 4)
    if device.type == "cpu":
        modules = attention, fetch_words, linear, prepare_inputs, rms_norm, rotary, silu_mul, token_mask, token_rules
        for module in modules:
            monkeypatch.setattr(module, "fused", lambda x: runner._capture.replaying)
    check_against_reference(model, runner, SAMPLINGS[sampling], VerificationMode.RATIO, num_steps=2)


def text_ahead(
    runner: GraphRunner, prompts: list[list[int]], known: list[list[int]], num_steps: int
) -> list[list[int]]:
    """What steps write of which each but the first is launched while the one before it runs.

    The right drafts are known for each sequence but the last, as branches for two outcomes, one of them wrong.
    """
    blocks = [range(i * BLOCKS, (i + 1) * BLOCKS) for i in range(len(prompts))]
    texts, drafts = [list(prompt) for prompt in prompts], [list[int]() for _ in prompts]
    finish = runner.launch(
        [Chunk(prompt, 0, blocks[i], 1) for i, prompt in enumerate(prompts)],
        [greedy_check(len(prompt), ()) for prompt in prompts],
    )
    outcomes = [(0, 0)] * len(prompts)
    for step in range(num_steps):
        successors = []
        for i, text in enumerate(texts):
            base = len(text)
            ends = base + len(drafts[i])
            branches = [Branch(0, known[i][base] + 1, [9, 9, 9])]
            if i + 1 < len(prompts):
                branches.append(Branch(len(drafts[i]), known[i][ends], known[i][ends + 1 : ends + 3]))
            successors.append(Successor(greedy_check(base, drafts[i]), blocks[i], branches))
        behind = runner.launch_after(successors)
        assert behind is not None
        outcomes = [(v.num_accepted, v.token_ids[-1]) for v in finish()] if step == 0 else finish()
        for i, (num_accepted, token_id) in enumerate(outcomes):
            texts[i] += [*drafts[i][:num_accepted], token_id]
            taken = [b.draft_ids for b in successors[i].branches if (b.num_accepted, b.token_id) == outcomes[i]]
            drafts[i] = list(taken[0]) if taken else []
        finish = behind
    finish()
    return texts


def greedy_check(base: int, draft_ids: Sequence[int]) -> SequenceCheck:
    draft = tuple(DraftToken(token_id, LawKind.ONE_HOT) for token_id in draft_ids)
    return SequenceCheck(draft=draft, base=base, sampling=SAMPLINGS["greedy"], mode=VerificationMode.RATIO)


def check_ahead(model: LlamaModel, runner: GraphRunner, num_seqs: int, num_steps: int) -> None:
    runner.follow_steps()
    prompts = [list(tokens) for tokens in Story(num_seqs, 0).tokens]
    known = Story(num_seqs, 0).run(reference(model), num_steps=3 * num_steps + 4)
    runner.prepare()
    texts = text_ahead(runner, prompts, known, num_steps)
    assert all(text == right[: len(text)] for text, right in zip(texts, known, strict=True))
    lengths = [len(text) - len(prompt) for text, prompt in zip(texts, prompts, strict=True)]
    assert lengths[-1] == num_steps
    assert all(length > num_steps for length in lengths[:-1]), "no draft stood"


@torch.inference_mode()
def test_steps_launched_ahead_write_the_references_text(
    model: LlamaModel, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = graph_runner(model, device, 4)
    if device.type == "cpu":
        for module in (attention, fetch_words, follow_up, linear, prepare_inputs, rms_norm, rotary, silu_mul):
            monkeypatch.setattr(module, "fused", lambda x: runner._capture.replaying)
    check_ahead(model, runner, num_seqs=2, num_steps=2)


@pytest.mark.gpu
@torch.inference_mode()
@pytest.mark.parametrize("num_seqs", [1, 3, 20, 32])
def test_many_steps_launched_ahead_write_the_references_text(
    model: LlamaModel, device: torch.device, num_seqs: int
) -> None:
    check_ahead(model, graph_runner(model, device, 32), num_seqs, num_steps=20)


@pytest.mark.gpu
@pytest.mark.parametrize("mode", list(VerificationMode))
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_graphs_draw_what_the_reference_draws(
    model: LlamaModel, device: torch.device, sampling: str, mode: VerificationMode
) -> None:
    check_against_reference(model, graph_runner(model, device, 4), SAMPLINGS[sampling], mode, num_steps=4)


@pytest.mark.gpu
def test_every_batch_size_is_served_from_a_graph_with_the_references_text(
    model: LlamaModel, device: torch.device
) -> None:
    runner = graph_runner(model, device, 32)
    runner.prepare()
    num_graphs, num_steps = runner.num_graphs, 0
    for num_seqs in range(1, 33):
        text = Story(num_seqs, 0).run(reference(model), num_steps=6)
        assert Story(num_seqs, 3, known=text).run(runner, num_steps=3) == Story(num_seqs, 3, known=text).run(
            reference(model), num_steps=3
        )
        num_steps += 3
    assert (runner.num_eager_steps, runner.num_graph_steps.total()) == (0, num_steps)
    assert runner.num_graphs == num_graphs, "nothing is captured while serving"


@pytest.mark.gpu
def test_a_model_of_smollm2s_shape_says_in_fp32_what_the_cpu_says(device: torch.device) -> None:
    shape = replace(
        CONFIG, vocab_size=49152, hidden_size=576, intermediate_size=1536, num_layers=30, num_heads=9, num_kv_heads=3,
        head_dim=64,
    )  # fmt: skip
    torch.manual_seed(1)
    model = LlamaModel(shape, torch.float32)
    for name, parameter in model.named_parameters():
        parameter.data.normal_(1.0 if "norm" in name else 0.0, 0.05)
    on_cpu = reference(model)
    text = Story(2, 0).run(on_cpu, num_steps=10)
    assert Story(2, 4, known=text).run(graph_runner(model, device, 4), num_steps=3) == Story(2, 4, known=text).run(
        on_cpu, num_steps=3
    )
