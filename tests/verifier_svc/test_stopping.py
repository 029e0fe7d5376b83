"""Where output ends, token by token and inside accepted blocks."""

import pytest

from slipstream.request import FinishReason, SamplingParams, SequenceRequest
from tests.scripted_runner import chain_law
from tests.verifier_svc.harness import VOCAB, Harness
from verifier_svc.stopping import StopRule, Taken

EOS = 2
PROMPT = [3, 4, 5, 6, 7]
K = 5
CONTEXT = 32


def next_token(history):
    """Counts up from the last token: 8, 9, 10, ... and back to 3 after the last id, never an end token."""
    return history[-1] + 1 if history[-1] + 1 < VOCAB else 3


LAW = chain_law(VOCAB, next_token)


def truth_after(prompt, count):
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(next_token(tokens))
    return tokens[len(prompt) :]


def run(tokenizer, sampling, *, prompt=PROMPT, drafted=True, law=LAW, truth=None, eos=(EOS,), **options):
    """Commits of one sequence whose drafts are all right, K at a time."""
    harness = Harness(law, tokenizer, max_model_len=CONTEXT, eos_token_ids=eos)
    harness.open(prompt, sampling={"max_tokens": 100} | sampling, num_draft_tokens=K if drafted else 0, **options)
    harness.draft(len(prompt), truth or truth_after(prompt, 40))
    harness.finish()
    assert harness.verifier.pool.num_used == 0
    return harness.commits[1, 1]


def output(commits):
    return [token_id for commit in commits for token_id in commit.token_ids]


@pytest.mark.parametrize("drafted", [True, False])
def test_a_stop_token_inside_an_accepted_block_ends_it_there(tokenizer, drafted):
    commits = run(tokenizer, {"stop_token_ids": (10,)}, drafted=drafted)
    assert output(commits) == [8, 9, 10]
    assert commits[-1].finish_reason is FinishReason.STOP
    assert sum(commit.num_accepted for commit in commits) == (3 if drafted else 0)


@pytest.mark.parametrize("drafted", [True, False])
def test_a_stop_string_inside_an_accepted_block_ends_it_at_the_completing_token(tokenizer, drafted):
    text = tokenizer.token_bytes(9).decode() + tokenizer.token_bytes(10).decode()
    asks = {"logprobs": True, "num_top_logprobs": 1}
    commits = run(tokenizer, {"stop_strings": (text,)} | asks, drafted=drafted)
    assert output(commits) == [8, 9, 10]
    assert (commits[-1].finish_reason, commits[-1].stop_string) == (FinishReason.STOP, text)
    likeliest = [token_id for commit in commits for (token_id,) in commit.logprobs.top_token_ids]
    assert likeliest == [8, 9, 10], "log probabilities must end with the ids"
    assert sum(commit.num_accepted for commit in commits) == (3 if drafted else 0)


def test_a_stop_string_that_spans_two_passes_is_found(tokenizer):
    text = b"".join(tokenizer.token_bytes(i) for i in (12, 13, 14, 15)).decode()
    commits = run(tokenizer, {"stop_strings": (text,)})
    assert output(commits) == [8, 9, 10, 11, 12, 13, 14, 15]
    assert len(commits) == 2


def test_a_stop_string_that_began_before_a_move_is_found(tokenizer):
    text = b"".join(tokenizer.token_bytes(i) for i in (6, 7, 8)).decode()
    commits = run(tokenizer, {"stop_strings": (text,)}, num_prompt_tokens=3)
    assert output(commits) == [8]
    assert commits[-1].stop_string == text


def test_a_stop_string_in_the_prompt_does_not_stop(tokenizer):
    text = tokenizer.token_bytes(7).decode() + tokenizer.token_bytes(8).decode()
    commits = run(tokenizer, {"stop_strings": (text,), "max_tokens": 4})
    assert output(commits) == [8, 9, 10, 11]


@pytest.mark.parametrize("max_tokens", range(1, 14))
@pytest.mark.parametrize("drafted", [True, False])
def test_max_tokens_is_exact_wherever_it_falls_in_a_block(tokenizer, max_tokens, drafted):
    commits = run(tokenizer, {"max_tokens": max_tokens}, drafted=drafted)
    assert output(commits) == truth_after(PROMPT, max_tokens)
    assert [commit.finish_reason for commit in commits][-1] is FinishReason.LENGTH
    assert all(commit.finish_reason is FinishReason.NONE for commit in commits[:-1])


@pytest.mark.parametrize("stop_at, reason", [(12, FinishReason.STOP), (13, FinishReason.LENGTH)])
@pytest.mark.parametrize("drafted", [True, False])
def test_a_stop_token_exactly_at_max_tokens_stops_and_one_after_it_does_not(tokenizer, stop_at, reason, drafted):
    commits = run(tokenizer, {"max_tokens": 5, "stop_token_ids": (stop_at,)}, drafted=drafted)
    assert output(commits) == [8, 9, 10, 11, 12]
    assert commits[-1].finish_reason is reason


@pytest.mark.parametrize("short_by", [1, 2, K - 1, K, K + 1, K + 2])
@pytest.mark.parametrize("drafted", [True, False])
def test_near_the_context_limit_exactly_what_fits_is_output(tokenizer, short_by, drafted):
    prompt = [3 + i % 4 for i in range(CONTEXT - short_by)]
    commits = run(tokenizer, {}, prompt=prompt, drafted=drafted)
    assert output(commits) == truth_after(prompt, short_by)
    assert commits[-1].finish_reason is FinishReason.LENGTH


def test_a_prompt_that_fills_the_context_is_refused_with_both_numbers(tokenizer):
    harness = Harness(LAW, tokenizer, max_model_len=CONTEXT)
    harness.open([3] * CONTEXT)
    harness.finish()
    assert f"{CONTEXT} tokens and the context {CONTEXT}" in str(harness.error())


def test_the_models_own_end_token_stops_unless_it_is_to_be_ignored(tokenizer):
    law = chain_law(VOCAB, lambda history: EOS if history[-1] == 9 else next_token(history))
    stopped = run(tokenizer, {}, law=law, truth=[8, 9, EOS, 3, 4])
    ignored = run(tokenizer, {"ignore_eos": True, "max_tokens": 6}, law=law, truth=[8, 9, EOS, 3, 4])
    assert output(stopped) == [8, 9, EOS]
    assert stopped[-1].finish_reason is FinishReason.STOP
    assert output(ignored) == [8, 9, EOS, 3, 4, 5]


def test_tokens_committed_before_a_move_count_against_max_tokens(tokenizer):
    commits = run(tokenizer, {"max_tokens": 6}, num_prompt_tokens=3)
    assert output(commits) == [8, 9, 10, 11]


def test_the_rule_takes_tokens_in_any_portions(tokenizer):
    sampling = SamplingParams(max_tokens=6, stop_strings=(tokenizer.token_bytes(12).decode(),))
    request = SequenceRequest(sequence_id=1, token_ids=(3,), num_prompt_tokens=1, sampling=sampling)
    rule = StopRule(request, eos_token_ids=(), max_len=7, tokenizer=tokenizer)
    assert rule.take([8, 9]) == Taken(2)
    assert rule.take([10, 11, 12, 13]) == Taken(3, FinishReason.STOP, sampling.stop_strings[0])
