"""Grammars and token rules together: at each position what both leave, as one token at a time has it."""

import numpy as np
import pytest

from slipstream.errors import InvalidRequest
from slipstream.grammar.compiler import GrammarCompiler
from slipstream.request import Grammar, GrammarKind, SamplingParams, VerificationMode
from tests.sampling.sequential import sequential
from tests.scripted_runner import random_law
from tests.tiny_models import EOS_TOKEN_ID
from tests.verifier_svc.harness import REMOTE, Harness, tiny_tokenizer
from verifier_svc.guide import NAME as GRAMMAR

VOCAB = 260  # every byte is a token
LAW = random_law(VOCAB, seed=3, spread=1.5)
PROMPT = (40, 41)
WORDS = Grammar(GrammarKind.REGEX, "(ab|cd|ef){2,12}[0-9]*")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return tiny_tokenizer(tmp_path_factory.mktemp("bytes"), VOCAB)


def guided_law(tokenizer, grammar):
    """The law with -inf where a matcher of its own, fed from the prompt's end each time, forbids a token."""
    compiled = GrammarCompiler(tokenizer, VOCAB, (EOS_TOKEN_ID,)).compile(grammar)

    def law(history):
        matcher, bits = compiled.matcher(), np.zeros((1, -(-VOCAB // 32)), dtype=np.int32)
        output = history[len(PROMPT) :]
        assert matcher.advance(output) == len(output)
        matcher.fill((), bits)
        allowed = np.unpackbits(bits.view(np.uint8), bitorder="little")[:VOCAB].astype(bool)
        return np.where(allowed, LAW(history), -np.inf)

    return law


def token(tokenizer, char):
    (token_id,) = tokenizer.encode(char, add_special_tokens=False)
    return token_id


def open_all(tokenizer, samplings):
    harness = Harness(
        LAW,
        tokenizer,
        vocab_size=VOCAB,
        max_model_len=96,
        num_blocks=400,
        eos_token_ids=(EOS_TOKEN_ID,),
        local_proposers=("ngram", GRAMMAR),
    )
    for i, sampling in enumerate(samplings):
        options = {"mode": VerificationMode.COUPLED, "seed": i, "proposers": (REMOTE, "ngram"), "num_draft_tokens": i}
        harness.open(PROMPT, i, sampling={name: getattr(sampling, name) for name in sampling.__slots__}, **options)
    harness.finish()
    return harness


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_penalties_and_bad_words_hold_within_a_grammar(tokenizer, temperature):
    a, b, c, d = (token(tokenizer, char) for char in "abcd")
    rules = [{"frequency_penalty": 1.5}, {"bad_words": ((b, a), (d, c))}, {"logit_bias": ((a, 6.0),), "min_tokens": 9}]
    samplings = [
        SamplingParams(temperature=temperature, max_tokens=20, grammar=WORDS, **(rules[i % 3])) for i in range(8)
    ]
    law = guided_law(tokenizer, WORDS)
    expected = [
        sequential(law, PROMPT, sampling, seed=i, stop_token_ids=(EOS_TOKEN_ID,))
        for i, sampling in enumerate(samplings)
    ]
    harness = open_all(tokenizer, samplings)
    assert [harness.output(i) for i in range(8)] == expected
    assert not harness.failures
    assert sum(commit.num_accepted for commits in harness.commits.values() for commit in commits) > 0


def test_where_rules_forbid_all_that_a_grammar_leaves_that_sequence_ends(tokenizer):
    b = token(tokenizer, "b")
    blocked = SamplingParams(temperature=0.0, grammar=Grammar(GrammarKind.REGEX, "ab+"), bad_words=((b,),))
    never_ends = SamplingParams(temperature=0.0, grammar=Grammar(GrammarKind.REGEX, "abab"), min_tokens=9)
    fine = SamplingParams(temperature=0.0, grammar=Grammar(GrammarKind.REGEX, "abab"))
    harness = open_all(tokenizer, [blocked, never_ends, fine])
    for i in (0, 1):
        assert isinstance(harness.error(i), InvalidRequest)
        assert "no token is allowed at position" in str(harness.error(i))
    assert len(harness.output(2)) == 5
    assert not harness.failures[1, 2]
