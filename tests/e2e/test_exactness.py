"""At temperature 1 the services write what the target alone would: chi-square against the enumerated law.

The vocabulary is tiny, so the law of the first tokens can be enumerated from the model. Many sequences run at once, so
that drafts hit, miss and come late. Every wrong rule of altered_services.py must fail the test.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy.stats import chisquare

from slipstream.models.loader import load_model
from slipstream.request import SamplingParams
from slipstream.sampling.target_law import shape_logits
from slipstream.wire.v1.generation_pb2 import GenerateResponse
from tests.e2e.altered_services import DRAFTER_RULES, VERIFIER_RULES
from tests.e2e.cluster import DEADLINE, Cluster, request
from tests.tiny_models import make_checkpoint

VOCAB = 8
PROMPT = [3, 4, 5, 6, 3, 4, 7, 3, 4, 5, 6, 7, 3, 4]  # repeats itself, so that n-gram matching drafts
TARGET_LAYERS = 2
NUM_ANSWERS = {"ratio": 1304, "coupled": 600}  # of a right service, and as many of a wrong one
SAMPLES = 8  # of a request: they differ as requests do, and cost less
AT_ONCE = 4  # requests
SIGNIFICANCE = 1e-5  # outcomes of ratio mode depend on timing, so this is how often a right service may fail
WRONG = 1e-7  # what every wrong rule must stay below; each has 1e-10 or less
QUICKLY_FOUND = ("draw_from_truncated_law_but_ship_the_whole",)  # the others are slow tests
WRONG_BY = 0.05  # total variation that every wrong rule must show
SAMPLING = SamplingParams(temperature=1.0, top_p=0.97)

pytestmark = pytest.mark.timeout(300)

TENANTS = [
    {
        "name": f"{mode}-{name}",
        "mode": mode,
        "proposers": proposers,
        "num_draft_tokens": 2,
        "fan_out": 2,
        "max_wait_ms": 1000,
    }
    for mode in ("ratio", "coupled")
    for name, proposers in (("model", ["draft_model"]), ("both", ["ngram", "draft_model"]))
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("exactness")
    target = make_checkpoint(folder / "target", vocab_size=VOCAB, layers=TARGET_LAYERS, logit_std=1.5, seed=3)
    return target, make_checkpoint(folder / "draft", vocab_size=VOCAB, layers=1, logit_std=2.0, seed=4)


@pytest.fixture(scope="module")
def target_law(models: tuple[Path, Path]) -> npt.NDArray[np.float64]:
    """[VOCAB, VOCAB, VOCAB]: the joint law of the first three output tokens."""
    model = load_model(models[0], torch.float32, "cpu")
    law = np.ones((VOCAB, VOCAB, VOCAB))
    for depth in range(3):
        for before in itertools.product(range(VOCAB), repeat=depth):
            with torch.inference_mode():
                hidden = model.forward_dense(torch.tensor([PROMPT + list(before)]))[:, -1]
                probs = shape_logits(model.logits(hidden), [SAMPLING]).softmax(-1)[0].double().numpy()
            law[before] *= probs.reshape(VOCAB, *[1] * (2 - depth))
    return law


async def sample(cluster: Cluster, tenant: str, num_answers: int) -> list[GenerateResponse]:
    gate = asyncio.Semaphore(AT_ONCE)
    async with cluster.client(tenant) as client:

        async def ask(seed: int) -> list[GenerateResponse]:
            asked = request(PROMPT, temperature=1.0, top_p=0.97, seed=seed, max_tokens=4, ignore_eos=True, n=SAMPLES)
            async with gate:
                first = await client.stub.GenerateOnce(asked, timeout=DEADLINE, metadata=client.metadata)
            return [first, *first.samples]

        answers = await asyncio.gather(*(ask(seed) for seed in range(num_answers // SAMPLES)))
    return list(itertools.chain.from_iterable(answers))


def p_values(answers: Sequence[GenerateResponse], law: npt.NDArray[np.float64]) -> dict[str, float]:
    """Of the first token, and of the joint first two and the joint second and third."""
    tokens = np.array([answer.token_ids[:3] for answer in answers])
    return {
        "first": _p_value(tokens[:, :1], law.sum((1, 2))),
        "first two": _p_value(tokens[:, :2], law.sum(2)),
        "second and third": _p_value(tokens[:, 1:3], law.sum(0)),
    }


def distance(answers: Sequence[GenerateResponse], law: npt.NDArray[np.float64]) -> float:
    """Total variation between what was seen and what is due, less what chance alone gives on average.

    The larger one of the first token's and the joint first two's. Chance and error add up to less than their sum, so
    this is too small rather than too large.
    """
    tokens = np.array([answer.token_ids[:2] for answer in answers])
    return max(_distance(tokens[:, :1], law.sum((1, 2))), _distance(tokens, law.sum(2)))


def _distance(tokens: npt.NDArray[np.int64], law: npt.NDArray[np.float64]) -> float:
    seen = _counts(tokens, law.shape) / len(tokens)
    by_chance = np.sqrt(2 * law * (1 - law) / (np.pi * len(tokens)))  # mean |deviation| of a cell, nearly normal
    return float((np.abs(seen - law) - by_chance).sum() / 2)


def _p_value(tokens: npt.NDArray[np.int64], law: npt.NDArray[np.float64]) -> float:
    seen, due = _counts(tokens, law.shape).ravel(), law.ravel() * len(tokens)
    if seen[due == 0].any():
        return 0.0  # a token that the target never writes
    common = due >= 5
    rare = ~common & (due > 0)
    seen = np.append(seen[common], seen[rare].sum())
    due = np.append(due[common], due[rare].sum())
    keep = due > 0
    return float(chisquare(seen[keep], due[keep] * seen[keep].sum() / due[keep].sum()).pvalue)


def _counts(tokens: npt.NDArray[np.int64], shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    counts = np.zeros(shape)
    for token_ids, count in Counter(map(tuple, tokens)).items():
        counts[token_ids] = count
    return counts


def start(cluster: Cluster, models: tuple[Path, Path], rule: str = "", *, meeting: bool = True) -> None:
    """`meeting`: drafts of both proposers are there whenever a tenant has two; else the drafter may rest meanwhile."""
    target, draft = models
    altered = "tests.e2e.altered_services"
    patience = "patient_for_remote" if meeting else "patient"
    cluster.verifier(target, module=f"{altered} verifier {patience}{',' + rule if rule in VERIFIER_RULES else ''}")
    cluster.drafter(draft, module=f"{altered} drafter {rule}" if rule in DRAFTER_RULES else "drafter_svc")
    cluster.gateway(TENANTS, module=f"{altered} gateway restless" if meeting else "gateway")


async def check_law(cluster: Cluster, tenant: str, law: npt.NDArray[np.float64]) -> None:
    answers = await sample(cluster, tenant, NUM_ANSWERS[tenant.split("-")[0]])
    submitted = sum(answer.usage.num_draft_tokens for answer in answers)
    accepted = sum(answer.usage.accepted_tokens for answer in answers)
    assert 0.1 * submitted < accepted < 0.95 * submitted, (tenant, accepted, submitted)
    assert min(p_values(answers, law).values()) > SIGNIFICANCE, (tenant, p_values(answers, law))


async def test_every_way_of_drafting_writes_the_target_law(
    tmp_path: Path, models: tuple[Path, Path], target_law: npt.NDArray[np.float64]
) -> None:
    with Cluster(tmp_path) as cluster:
        start(cluster, models)
        for tenant in TENANTS:
            await check_law(cluster, str(tenant["name"]), target_law)


async def test_a_drafter_that_rests_while_n_grams_draft_changes_no_law(
    tmp_path: Path, models: tuple[Path, Path], target_law: npt.NDArray[np.float64]
) -> None:
    with Cluster(tmp_path) as cluster:
        start(cluster, models, meeting=False)
        await check_law(cluster, "ratio-both", target_law)


@pytest.mark.parametrize(
    "rule",
    [
        rule if rule in QUICKLY_FOUND else pytest.param(rule, marks=pytest.mark.slow)
        for rule in (*DRAFTER_RULES, *VERIFIER_RULES)
    ],
)
async def test_a_wrong_rule_is_found_out(
    tmp_path: Path, models: tuple[Path, Path], target_law: npt.NDArray[np.float64], rule: str
) -> None:
    with Cluster(tmp_path) as cluster:
        start(cluster, models, rule)
        tenant = "ratio-both" if rule == "merge_laws_of_two_proposers" else "ratio-model"
        answers = await sample(cluster, tenant, NUM_ANSWERS["ratio"])
    assert min(p_values(answers, target_law).values()) < WRONG
    assert distance(answers, target_law) > WRONG_BY
