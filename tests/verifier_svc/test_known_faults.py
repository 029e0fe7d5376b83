"""Faults that users of speculative decoding report elsewhere, on a real (tiny, fp32) model and its KV cache."""

import numpy as np
import pytest

from slipstream.config import EngineConfig
from slipstream.engine.loading import make_runner
from slipstream.engine.scheduler import Scheduler
from slipstream.request import SamplingParams, SequenceRequest, VerificationMode
from slipstream.text.tokenizer import Tokenizer
from tests.models.reference import reference_logits
from tests.tiny_models import make_checkpoint
from verifier_svc.verifier import Verifier

WORD = (40, 41, 42)
CONTEXT = 256


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("model"), max_position_embeddings=CONTEXT, seed=4)


@pytest.fixture
def make_verifier(checkpoint):
    def make(**limits):
        config = EngineConfig(model=checkpoint, dtype="float32", **({"num_kv_blocks": 160} | limits))
        scheduler = Scheduler(
            max_num_seqs=8, max_num_batched_tokens=config.max_num_batched_tokens, max_waiting=config.max_num_seqs
        )
        return Verifier(make_runner(config), Tokenizer.from_folder(checkpoint), scheduler)

    return make


def request(sequence_id, prompt, *, temperature=0.0, max_tokens=32, asks=None, **options):
    sampling = SamplingParams(temperature=temperature, max_tokens=max_tokens, ignore_eos=True, **(asks or {}))
    defaults = {"mode": VerificationMode.COUPLED, "num_draft_tokens": 0, "proposers": ("ngram",)}
    return SequenceRequest(
        sequence_id=sequence_id,
        token_ids=tuple(prompt),
        num_prompt_tokens=len(prompt),
        sampling=sampling,
        **(defaults | options),
    )


def generate(verifier, *requests):
    """All at once: commits by sequence id."""
    for one in requests:
        verifier.handle((1, one))
    commits = {one.sequence_id: [] for one in requests}
    while verifier.sequences:
        for output in verifier.step() or []:
            assert not output.failures
            for commit in output.commits.commits:
                commits[commit.sequence_id].append(commit)
    return commits


def text_of(commits):
    return [token_id for commit in commits for token_id in commit.token_ids]


def acceptance_length(commits):
    drafted = [commit for commit in commits if commit.num_draft_tokens]
    return 1 + sum(commit.num_accepted for commit in drafted) / len(drafted)


@pytest.mark.parametrize("temperature", [0.0, 0.5])
@pytest.mark.parametrize("mode", VerificationMode)
def test_ngram_drafts_do_not_change_the_text_of_a_repetitive_prompt(make_verifier, temperature, mode):
    options = {"temperature": temperature, "mode": mode, "max_tokens": 100, "seed": 2}
    plain = generate(make_verifier(), request(1, WORD * 48, **options))[1]
    drafted = generate(make_verifier(), request(1, WORD * 48, num_draft_tokens=5, **options))[1]
    assert text_of(drafted) == text_of(plain)
    assert sum(commit.num_draft_tokens for commit in drafted) > 0
    assert sum(commit.num_accepted for commit in drafted) < sum(commit.num_draft_tokens for commit in drafted)


def test_a_seed_gives_the_same_text_alone_and_among_seven_others(make_verifier):
    mine = request(1, WORD * 3, temperature=1.0, seed=77)
    others = [request(i, WORD[:2] * i, temperature=1.0, seed=i, num_draft_tokens=i % 4) for i in range(2, 9)]
    alone, together = generate(make_verifier(), mine), generate(make_verifier(), mine, *others)
    assert text_of(together[1]) == text_of(alone[1])


def test_other_seeds_give_other_texts(make_verifier):
    commits = generate(make_verifier(), *(request(i, WORD, temperature=1.0, seed=i) for i in range(8)))
    assert len({tuple(text_of(said)) for said in commits.values()}) == 8


def test_preemption_and_chunked_prompts_change_nothing_but_speed(make_verifier):
    requests = [request(i, [40 + i, *WORD * 12], seed=i, temperature=1.0, num_draft_tokens=3) for i in range(4)]
    wide = generate(make_verifier(), *requests)
    narrow_verifier = make_verifier(num_kv_blocks=16, max_num_batched_tokens=16)
    narrow = generate(narrow_verifier, *requests)
    assert {i: text_of(said) for i, said in narrow.items()} == {i: text_of(said) for i, said in wide.items()}
    assert narrow_verifier.pool.num_used == 0


def test_the_second_turn_of_a_chat_reuses_the_kv_of_the_first(make_verifier):
    verifier = make_verifier()
    first = text_of(generate(verifier, request(1, WORD * 8, num_draft_tokens=4))[1])
    history = (*WORD * 8, *first, 50, 51)
    cached = generate(verifier, request(2, history))[2]
    fresh = generate(make_verifier(), request(2, history))[2]
    assert cached[0].num_cached_tokens >= len(WORD) * 8 + 16
    assert text_of(cached) == text_of(fresh)


def test_acceptance_does_not_fall_with_the_batch(make_verifier):
    requests = [request(i, [40 + i, *WORD * 4], num_draft_tokens=4, max_tokens=48) for i in range(8)]
    together = generate(make_verifier(), *requests)
    alone = {one.sequence_id: generate(make_verifier(), one)[one.sequence_id] for one in requests}
    lengths = {i: acceptance_length(said) for i, said in together.items()}
    assert lengths == {i: acceptance_length(said) for i, said in alone.items()}
    assert max(lengths.values()) > 2


@pytest.mark.parametrize("mode", VerificationMode)
@pytest.mark.parametrize("temperature", [0.0, 0.5])
def test_log_probabilities_are_the_targets_own_and_leave_drafts_on(checkpoint, make_verifier, temperature, mode):
    prompt, asks = WORD * 16, {"logprobs": True, "num_top_logprobs": 5}
    options = {"temperature": temperature, "mode": mode, "max_tokens": 48, "seed": 2, "asks": asks}
    plain = generate(make_verifier(), request(1, prompt, **options))[1]
    drafted = generate(make_verifier(), request(1, prompt, num_draft_tokens=5, **options))[1]
    silent = generate(make_verifier(), request(1, prompt, num_draft_tokens=5, **(options | {"asks": None})))[1]
    assert text_of(drafted) == text_of(plain) == text_of(silent)
    assert sum(commit.num_draft_tokens for commit in drafted) == sum(commit.num_draft_tokens for commit in silent) > 0
    num_accepted = sum(commit.num_accepted for commit in drafted)
    assert num_accepted < sum(commit.num_draft_tokens for commit in drafted)
    assert num_accepted > 0 or temperature > 0
    truth = reference_logits(checkpoint, [*prompt, *text_of(plain)]).log_softmax(-1).numpy()
    for commit in (*plain, *drafted):
        assert len(commit.logprobs) == len(commit.token_ids)
        for i, token_id in enumerate(commit.token_ids):
            law = truth[commit.base + i - 1]
            assert commit.logprobs.logprobs[i] == pytest.approx(law[token_id], abs=1e-3)
            np.testing.assert_allclose(
                commit.logprobs.top_logprobs[i], law[commit.logprobs.top_token_ids[i]], atol=1e-3
            )
            np.testing.assert_allclose(commit.logprobs.top_logprobs[i], np.sort(law)[::-1][:5], atol=1e-3)


def test_log_probabilities_of_a_prompt_are_the_targets_own(checkpoint, make_verifier):
    prompt = [40 + i * i % 50 for i in range(90)]
    verifier = make_verifier(max_num_batched_tokens=32)
    verifier.handle((1, request(1, prompt, max_tokens=1, asks={"prompt_logprobs": True, "num_top_logprobs": 2})))
    parts = [part for _ in range(5) for output in verifier.step() or [] for part in output.commits.prompt_logprobs]
    assert len(parts) == 3
    told = np.concatenate([part.logprobs.logprobs for part in parts])
    truth = reference_logits(checkpoint, prompt).log_softmax(-1).numpy()
    np.testing.assert_allclose(told, truth[np.arange(89), prompt[1:]], atol=1e-3)
