"""Sequences with a grammar: the plain rule for them, and drafters that know no grammar. Knows no engine."""

from __future__ import annotations

from functools import cache

import numpy as np

from slipstream.exchange import LAW_TOTAL, DraftToken, LawKind, SparseLaw
from slipstream.grammar.compiler import GrammarCompiler
from slipstream.request import Grammar, GrammarKind, VerificationMode
from slipstream.sampling.philox import Stream, gumbel, random_words
from tests.tiny_models import EOS_TOKEN_ID

VOCAB = 260  # every byte is a token


def regex(text):
    return Grammar(GrammarKind.REGEX, text)


def closing_law(law, tokenizer, lift=4.0):
    """The law with more weight on what ends strings, lists and outputs, so that a random model comes to an end."""
    closing = [EOS_TOKEN_ID, *(tokenizer.encode(char)[0] for char in '"]}')]

    @cache
    def lifted(history):
        logits = law(history).copy()
        logits[closing] += lift
        return logits

    return lifted


def one_at_a_time(law, tokenizer, prompt, grammar, *, temperature, seed, max_tokens, top_k=0):
    """What the target says under its grammar, token by token, with a matcher of its own and no drafts."""
    matcher = GrammarCompiler(tokenizer, VOCAB, (EOS_TOKEN_ID,)).compile(grammar).matcher()
    output, bits = [], np.zeros((1, -(-VOCAB // 32)), dtype=np.int32)
    while len(output) < max_tokens and output[-1:] != [EOS_TOKEN_ID]:
        matcher.fill((), bits)
        allowed = np.unpackbits(bits.view(np.uint8), bitorder="little")[:VOCAB].astype(bool)
        scores = np.where(allowed, law((*prompt, *output)).astype(np.float32), -np.inf)
        if temperature:
            scores = (scores - scores.max()) / np.float32(temperature)
            words = random_words(seed, len(prompt) + len(output), 0, Stream.RESIDUAL, token_ids=np.arange(VOCAB))
            scores = scores + gumbel(words)
        output.append(int(scores.argmax()))
        assert matcher.advance(output[-1:]) == 1
    return output


class BlindDrafter:
    """Drafts by a law of its own that knows no grammar. One-hot where tokens are checked by match."""

    def __init__(self, law, proposer, mode, *, seed=0):
        self.law = law
        self.proposer = proposer
        self._mode = mode
        self._rng = np.random.default_rng(seed)
        self._draw = 0

    def send(self, harness, sequence_id, history, count):
        tokens = self.path(history, count)
        self._draw += 1
        harness.draft(len(history), tokens, sequence_id, draw=self._draw, proposer=self.proposer)

    def path(self, history, count):
        tokens = []
        for _ in range(count):
            token = self._token(history)
            tokens.append(token)
            history = (*history, token.token_id)
        return tokens

    def _token(self, history):
        if self._mode is VerificationMode.COUPLED:
            return DraftToken(int(self.law(history).argmax()), LawKind.ONE_HOT)
        law = self._sparse(history)
        return DraftToken(int(self._rng.choice(law.token_ids, p=law.counts / LAW_TOTAL)), LawKind.SPARSE, law)

    def _sparse(self, history, num_kept=16):
        logits = self.law(history)
        kept = np.argsort(-logits)[:num_kept].astype(np.int32)
        weights = np.exp(logits[kept] - logits[kept].max())
        counts = np.maximum(1, np.floor(weights / weights.sum() * LAW_TOTAL)).astype(np.int64)
        counts[0] += LAW_TOTAL - counts.sum()
        return SparseLaw(kept, counts.astype(np.uint16))
