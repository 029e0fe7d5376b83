"""Drafts by looking back: what followed the last time these tokens stood here. Knows token ids, no model."""

from __future__ import annotations

from collections.abc import Sequence

NAME = "ngram"
MIN_MATCH = 2
MAX_MATCH = 5
MAX_CANDIDATES = 16  # most recent occurrences compared


class NgramProposer:
    """Longest suffix match over the committed tokens of one sequence; of equal matches the most recent.

    Only committed tokens may be given: an index that has seen discarded drafts would bias the output.
    """

    def __init__(
        self, token_ids: Sequence[int] = (), *, min_match: int = MIN_MATCH, max_match: int = MAX_MATCH
    ) -> None:
        if not 1 <= min_match <= max_match:
            raise ValueError(f"min_match is {min_match}, max_match {max_match}; need 1 <= min_match <= max_match")
        self._min_match = min_match
        self._max_match = max_match
        self._tokens: list[int] = []
        self._last_end: dict[tuple[int, ...], int] = {}  # n-gram of min_match tokens -> where it last ended
        self._previous_end: list[int] = []  # per position: where the n-gram that ends here ended before; 0 = nowhere
        self.extend(token_ids)

    def __len__(self) -> int:
        return len(self._tokens)

    @property
    def match_length(self) -> int:
        """How many of the last tokens stood somewhere before; 0 if too few to propose anything."""
        end = self._best_match()
        return self._match_length(end) if end else 0

    def extend(self, token_ids: Sequence[int]) -> None:
        """Append committed tokens."""
        for token_id in token_ids:
            self._tokens.append(token_id)
            self._previous_end.append(self._index_suffix())

    def propose(self, num_tokens: int) -> tuple[int, ...]:
        """The `num_tokens` tokens that followed the best match, or none: a function of the committed tokens alone."""
        source = self._best_match()
        if not source:
            return ()
        return copied(self._tokens, source, num_tokens)

    def _index_suffix(self) -> int:
        """Note where the newest n-gram ends; return where it ended before."""
        end = len(self._tokens)
        if end < self._min_match:
            return 0
        suffix = tuple(self._tokens[end - self._min_match :])
        previous = self._last_end.get(suffix, 0)
        self._last_end[suffix] = end
        return previous

    def _best_match(self) -> int:
        """The end of the earlier occurrence that shares most tokens with the suffix; 0 = none."""
        best_end, best_length = 0, 0
        end = self._previous_end[-1] if self._previous_end else 0
        for _ in range(MAX_CANDIDATES):
            if not end or best_length == self._max_match:
                break
            length = self._match_length(end)
            if length > best_length:
                best_end, best_length = end, length
            end = self._previous_end[end - 1]
        return best_end

    def _match_length(self, end: int) -> int:
        length = 0
        while length < min(self._max_match, end) and self._tokens[end - 1 - length] == self._tokens[-1 - length]:
            length += 1
        return length


def copied(token_ids: Sequence[int], start: int, num_tokens: int) -> tuple[int, ...]:
    """What follows `start`, which lies in the text. A copy that runs into its own beginning repeats it, as asked."""
    period = len(token_ids) - start
    followed = token_ids[start : start + num_tokens]
    return tuple(followed[i % period] for i in range(num_tokens))
