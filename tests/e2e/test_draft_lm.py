"""Acceptance measured offline is what the drafter itself reaches, step by step over its cache, and what services do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch

from drafter_svc.proposers.draft_model import load_draft_model
from drafter_svc.proposers.proposer import Drawing, Proposer, Row
from launcher.bench import BenchOptions, run_bench
from launcher.evaluation.asked import Asked, Candidate
from launcher.evaluation.offline import make_pair
from launcher.evaluation.report import Evaluation
from launcher.prompt_file import Prompt
from launcher.request_options import RequestOptions
from slipstream.config import EngineConfig, default_model_dir
from slipstream.models.draft_checkpoint import draft_tokens, save_draft, target_folder
from slipstream.models.loader import load_model, open_checkpoint
from slipstream.request import SamplingParams, VerificationMode
from slipstream.text.tokenizer import Tokenizer
from slipstream.training.acceptance import Acceptance
from slipstream.training.chat_frame import ChatFrame
from slipstream.training.draft_model import draft_from_target
from slipstream.training.held_out import HeldOut, read_prompts
from slipstream.training.master_weights import MasterWeights
from tests.e2e.cluster import Cluster, request
from tests.tiny_models import make_checkpoint, make_similar_checkpoint

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "drafters" / "smollm2-135m-instruct-draft"
SHIPPED_HEAD = ROOT / "drafters" / "smollm2-135m-instruct-eagle3"
NUM_DRAFT_TOKENS = 5
GREEDY = Drawing(
    sampling=SamplingParams(temperature=0.0), mode=VerificationMode.RATIO, seed=0, draft_key=0, sample_index=0
)


def drafted(drafter: Proposer, held_out: HeldOut) -> Acceptance:
    """Drafts for every held-out answer as a server would: K tokens past what is committed, on from the verdict."""
    drafts, accepted_at = 0, [0] * NUM_DRAFT_TOKENS
    for row, (first, end) in zip(held_out.token_ids.tolist(), held_out.spans, strict=True):
        committed = first + 1
        while committed < end:
            num_accepted = _accepted(drafter, row, committed, end)
            for position in range(num_accepted):
                accepted_at[position] += 1
            drafts += 1
            committed += num_accepted + 1
    return Acceptance(drafts, tuple(accepted_at))


def _accepted(drafter: Proposer, row: list[int], committed: int, end: int) -> int:
    context, fed = row[:committed], 0
    for count in range(min(NUM_DRAFT_TOKENS, end - committed)):
        ((proposal,),) = drafter.propose(
            [
                Row(
                    token_ids=context[fed:],
                    start=fed,
                    block_ids=range(drafter.limits.num_blocks),
                    drawing=GREEDY,
                    draw=count,
                    num_wanted=1,
                    num_outcomes=1,
                )
            ]
        )
        fed = len(context)
        context.append(proposal.token.token_id)
        if context[-1] != row[fed]:
            return count
    return min(NUM_DRAFT_TOKENS, end - committed)


def measured(
    draft: Path, target: Path, questions: list[tuple[int, ...]], tokens: int, dtype: str
) -> tuple[float, float]:
    """Mean acceptance length offline, and by the drafter."""
    tokenizer, cpu = Tokenizer.from_folder(target), torch.device("cpu")
    torch_dtype: torch.dtype = getattr(torch, dtype)
    target_model = load_model(target, torch_dtype, cpu)
    held_out = HeldOut.written_by(target_model, ChatFrame.of(tokenizer), questions, answer_tokens=tokens)
    vocabulary = draft_tokens(draft)
    assert vocabulary is not None
    offline = held_out.acceptance(load_model(draft, torch_dtype, cpu, target=target), vocabulary, NUM_DRAFT_TOKENS)
    engine = EngineConfig(model=draft, target_model=target, dtype=dtype, num_kv_blocks=32)
    drafter = load_draft_model(engine, num_target_ids=tokenizer.vocab_size, num_kept=32)
    return offline.length, drafted(drafter, held_out).length


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A target, and a stored draft with all its layers and half of its vocabulary."""
    folder = tmp_path_factory.mktemp("stored")
    target = make_checkpoint(folder / "target", layers=3, tie_word_embeddings=True, logit_std=4.0)
    target_model = load_model(target, torch.float32, torch.device("cpu"))
    tokens = torch.arange(0, 320, 2)
    weights = MasterWeights.of_draft(draft_from_target(target_model, (0, 1, 2), tokens)).weights
    save_draft(folder / "draft", open_checkpoint(target).config(), weights, tokens, "target")
    return target, folder / "draft"


def test_offline_acceptance_is_the_drafters(stored: tuple[Path, Path]) -> None:
    target, draft = stored
    questions = [tuple(range(60, 66)), tuple(range(80, 84)), (70, 71, 72)]
    offline, by_the_drafter = measured(draft, target, questions, 40, "float32")
    assert offline == by_the_drafter
    assert 1.2 < offline < 1 + NUM_DRAFT_TOKENS


def test_evaluation_counts_what_training_measures(stored: tuple[Path, Path]) -> None:
    target, draft = stored
    tokenizer, prompts = Tokenizer.from_folder(target), ["Hello", "What now?", "Who is it?"]
    questions = [tokenizer.encode(prompt, add_special_tokens=False) for prompt in prompts]
    in_training, _ = measured(draft, target, questions, 60, "float32")
    engine = EngineConfig(model=target, dtype="float32", num_kv_blocks=64)
    pair = make_pair(engine, Candidate(proposer="draft_model", folder=draft))
    asked = Asked(num_draft_tokens=NUM_DRAFT_TOKENS, max_tokens=60)
    evaluation = Evaluation.of_passes("draft_model", pair.answer(prompts, asked))
    # The verifier asks for no draft of an answer's very last token.
    assert evaluation.figures.acceptance_length == pytest.approx(in_training, abs=0.02 * in_training)


@pytest.mark.model
@pytest.mark.timeout(300)
def test_the_shipped_draft_lm_drafts_well(monkeypatch: pytest.MonkeyPatch) -> None:
    target = target_folder(SHIPPED)
    assert target == default_model_dir() / "smollm2-135m-instruct"
    tokenizer = Tokenizer.from_folder(target)
    prompts = read_prompts(ROOT / "bench" / "prompts" / "chat_eval.jsonl")[:4]
    questions = [tokenizer.encode(prompt, add_special_tokens=False) for prompt in prompts]
    offline, by_the_drafter = measured(SHIPPED, target, questions, 32, "float32")
    assert by_the_drafter == pytest.approx(offline, abs=0.02)
    assert offline > 1.9  # 2.5 over all 40 prompts of 128 tokens


REMOTE = ("draft_model", "pard")
ASKED = Asked(num_draft_tokens=3, max_tokens=60)
CHATS = [f"Say something about number {i}." for i in range(4)]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A target and its draft, whose weights draft token by token and in blocks."""
    folder = tmp_path_factory.mktemp("parity")
    target = make_checkpoint(folder / "target", logit_std=3.0, pard_token=319, spd_type="pard")
    return target, make_similar_checkpoint(target, folder / "draft", noise=0.02)


@pytest.fixture(scope="module")
def cluster(models: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    target, draft = models
    with Cluster(tmp_path_factory.mktemp("services")) as cluster:
        cluster.verifier(target)
        for index, proposer in enumerate(REMOTE, 1):
            cluster.drafter(draft, "--proposer", proposer, name=f"drafter{index}")
        cluster.gateway(
            [
                {"name": name, "proposers": [name], "mode": "coupled", "max_wait_ms": 1000, "num_draft_tokens": 3}
                for name in ("none", *REMOTE)
            ]
        )
        yield cluster


async def test_a_parallel_draft_writes_the_targets_text(cluster: Cluster) -> None:
    asked = request([5, 6, 7, 5, 6], temperature=1.0, seed=3, max_tokens=48, ignore_eos=True)
    answers = {}
    for tenant in ("none", *REMOTE):
        async with cluster.client(tenant) as client:
            answers[tenant] = await client.generate(asked)
    assert answers["draft_model"].token_ids == answers["pard"].token_ids == answers["none"].token_ids


def test_services_write_the_text_that_offline_evaluation_counts(cluster: Cluster, models: tuple[Path, Path]) -> None:
    target, draft = models
    engine = EngineConfig(model=target, dtype="float32", num_kv_blocks=64)
    pair = make_pair(engine, Candidate(proposer="pard", folder=draft))
    offline = Evaluation.of_passes("offline", pair.answer(CHATS, ASKED))
    for _ in range(10):  # of a target this small all drafts may come too late
        online = through(cluster.address("gateway"), "pard", CHATS, ASKED)
        assert online.figures.num_tokens == offline.figures.num_tokens
        if online.figures.num_drafts:
            return
    raise AssertionError("no draft came in time in forty answers")


def through(gateway: str, tenant: str, prompts: Sequence[str], asked: Asked) -> Evaluation:
    options = BenchOptions(
        target=gateway,
        requests=len(prompts),
        api_key=tenant,
        request=RequestOptions(max_tokens=asked.max_tokens, temperature=asked.temperature),
    )
    report = run_bench([Prompt(text=prompt) for prompt in prompts], options)
    assert not report.failures
    return Evaluation(tenant, report.figures)


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("proposer", ["draft_model", "pard", "eagle3"])
def test_services_accept_of_a_shipped_drafter_what_offline_evaluation_says(proposer: str, tmp_path: Path) -> None:
    target, asked = target_folder(SHIPPED), Asked(num_draft_tokens=NUM_DRAFT_TOKENS, max_tokens=64)
    drafter = SHIPPED_HEAD if proposer == "eagle3" else SHIPPED
    prompts = read_prompts(ROOT / "bench" / "prompts" / "chat_eval.jsonl")[:6]
    # In 16 bits the services' other batches make some other tokens, which so few answers would show.
    pair = make_pair(EngineConfig(model=target, dtype="float32"), Candidate(proposer=proposer, folder=drafter))
    offline = Evaluation.of_passes("offline", pair.answer(prompts, asked))
    tenant = {"name": "a", "proposers": [proposer], "num_draft_tokens": NUM_DRAFT_TOKENS, "max_wait_ms": 1000}
    features = ["--features", str(drafter)] if proposer == "eagle3" else []
    with Cluster(tmp_path) as cluster:
        cluster.verifier(target, "--dtype", "float32", *features)
        cluster.drafter(drafter, "--dtype", "float32", "--proposer", proposer, "--target-model", str(target))
        online = through(cluster.gateway([tenant]), "a", prompts, asked)
    # Late drafts are shorter, so lengths agree on an idle machine only.
    assert online.agreement == pytest.approx(offline.agreement, abs=0.02)
