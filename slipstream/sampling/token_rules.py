"""Penalties, bias and forbidden tokens of one sequence, kept up to date as it grows. Knows token ids; no tensors.

`rule_logits` in rule_reference.py says the same plainly, from whole prefixes. Here nothing looks at a whole prefix
twice: what holds for all rows of a step is kept in `shared`, and a row adds what the draft tokens before it change.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from slipstream.request import MAX_BAD_WORD_TOKENS, SamplingParams
from slipstream.token_bits import num_words, packed

FORBIDDEN = -np.inf
NUM_WORDS = 3  # of an entry: token id, bits of its scale, bits of its addend
Words = npt.NDArray[np.int32]


class Entry(NamedTuple):
    """What happens to one token's logit x: (x / scale if x > 0 else x * scale) + addend, in fp32."""

    token_id: int
    scale: float
    addend: float


class TokenRules:
    """Of a sequence whose request has any of them; `make_token_rules` says which."""

    def __init__(
        self,
        sampling: SamplingParams,
        token_ids: Sequence[int],  # prompt, then output so far
        num_prompt_tokens: int,
        stop_token_ids: Collection[int],  # all that would end the output
    ) -> None:
        self.sampling = sampling
        self.token_ids = list(token_ids[:num_prompt_tokens])
        self.num_prompt_tokens = num_prompt_tokens
        self.stop_token_ids = frozenset(stop_token_ids)
        self._penalises = has_penalties(sampling)
        self._bias = dict(sampling.logit_bias)
        self._banned = frozenset(word[0] for word in sampling.bad_words if len(word) == 1)
        self._longer_words: defaultdict[int, list[tuple[int, ...]]] = defaultdict(list)  # by the token before the last
        for word in sampling.bad_words:
            if len(word) > 1:
                self._longer_words[word[-2]].append(word)
        self._seen: set[int] = set(self.token_ids) if sampling.repetition_penalty != 1 else set()
        self._counts: Counter[int] = Counter()  # of output tokens
        self._entries = _EntryList(self._seen, sampling.repetition_penalty)
        for token_id in {*self._bias, *self._banned}:
            self._entries.put(self._entry(token_id))
        self._allowed = frozenset(sampling.allowed_token_ids)  # none: all are
        self._mask = np.empty(0, np.int32)
        self.extend(token_ids[num_prompt_tokens:])

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def shared(self) -> Words:
        """What holds at every row unless the row has an entry of its own: [num_entries, NUM_WORDS], a view."""
        return self._entries.words

    def extend(self, token_ids: Iterable[int]) -> None:
        """These became final."""
        for token_id in token_ids:
            self.token_ids.append(token_id)
            if self._penalises:
                self._counts[token_id] += 1
                self._entries.put(self._entry(token_id, 0, seen=True))
                self._seen.add(token_id)

    def row_entries(self, drafted: Sequence[int]) -> list[Entry]:
        """What takes the place of shared entries, or comes beside them, after so many draft tokens."""
        own: dict[int, Entry] = {}
        if self._penalises:
            for token_id, count in Counter(drafted).items():
                own[token_id] = self._entry(token_id, count, seen=True)
        for token_id in self._forbidden_after(drafted):
            own[token_id] = Entry(token_id, 1.0, FORBIDDEN)
        return list(own.values())

    def allows_any(self, drafted: Sequence[int], vocab_size: int) -> bool:
        """Whether some token may follow."""
        forbidden = {*self._banned, *self._forbidden_after(drafted)}
        if len(forbidden) < (len(self._allowed) or vocab_size):
            return True
        return any(token_id not in forbidden for token_id in self._allowed or range(vocab_size))

    def allows(self, token_id: int, drafted: Sequence[int]) -> bool:
        """Whether this very token may follow."""
        forbidden = token_id in self._banned or token_id in self._forbidden_after(drafted)
        return not forbidden and (not self._allowed or token_id in self._allowed)

    def mask(self, vocab_size: int) -> Words | None:
        """The set of allowed tokens, packed (token_bits.py); None: all are."""
        if not self.sampling.allowed_token_ids:
            return None
        if len(self._mask) != num_words(vocab_size):
            self._mask = packed(self.sampling.allowed_token_ids, vocab_size)
        return self._mask

    def _entry(self, token_id: int, num_drafted: int = 0, *, seen: bool = False) -> Entry:
        """One token after `num_drafted` more of it. The addend is rounded once, from double."""
        sampling, count = self.sampling, self._counts[token_id] + num_drafted
        if token_id in self._banned:
            return Entry(token_id, 1.0, FORBIDDEN)
        scale = sampling.repetition_penalty if seen or token_id in self._seen else 1.0
        penalty = sampling.frequency_penalty * count + (sampling.presence_penalty if count else 0.0)
        return Entry(token_id, scale, self._bias.get(token_id, 0.0) - penalty)

    def _forbidden_after(self, drafted: Sequence[int]) -> set[int]:
        """By what comes before: last tokens of bad words that have begun, and stop tokens before min_tokens."""
        forbidden: set[int] = set()
        if self._longer_words:
            before = (*self.token_ids[-MAX_BAD_WORD_TOKENS:], *drafted)
            for word in self._longer_words.get(before[-1], ()):
                if before[1 - len(word) :] == word[:-1]:
                    forbidden.add(word[-1])
        if self.num_output_tokens + len(drafted) < self.sampling.min_tokens:
            forbidden |= self.stop_token_ids
        return forbidden


def make_token_rules(
    sampling: SamplingParams, token_ids: Sequence[int], num_prompt_tokens: int, stop_token_ids: Collection[int]
) -> TokenRules | None:
    """None for a request that has no such rules: it pays nothing."""
    asked = (sampling.logit_bias, sampling.allowed_token_ids, sampling.bad_words, sampling.min_tokens)
    if not (has_penalties(sampling) or any(asked)):
        return None
    return TokenRules(sampling, token_ids, num_prompt_tokens, stop_token_ids)


def has_penalties(sampling: SamplingParams) -> bool:
    return sampling.repetition_penalty != 1 or sampling.presence_penalty != 0 or sampling.frequency_penalty != 0


class _EntryList:
    """Entries by token, as words in one array that grows."""

    def __init__(self, seen: Collection[int], scale: float) -> None:
        """Starts with tokens that are scaled and nothing else: a long prompt's are written at once."""
        token_ids = np.fromiter(seen, np.int32, len(seen))
        self._slots = {token_id: slot for slot, token_id in enumerate(token_ids.tolist())}
        self._words = np.zeros((max(16, 2 * len(seen)), NUM_WORDS), dtype=np.int32)
        self._words[: len(seen), 0] = token_ids
        self._words.view(np.float32)[: len(seen), 1] = scale

    @property
    def words(self) -> Words:
        return self._words[: len(self._slots)]

    def put(self, entry: Entry) -> None:
        slot = self._slots.setdefault(entry.token_id, len(self._slots))
        if slot == len(self._words):
            self._words = np.concatenate((self._words, np.zeros_like(self._words)))
        self._words[slot, 0] = entry.token_id
        self._words.view(np.float32)[slot, 1:] = entry.scale, entry.addend
