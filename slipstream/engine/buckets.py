"""The padded sizes for which steps are captured as graphs, and which of them a step takes. Knows counts; no tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slipstream.kernels.batch import Chunk
from slipstream.sampling.check import SequenceCheck

MOST_TOKENS = 1024  # beyond it the launches of an eager step are hidden behind its arithmetic
ROWS_PER_SEQUENCE = 16  # tokens of one sequence whose logits are wanted, on average: drafts and one more
FEWEST_QUERIES = 8  # tokens of one sequence that attention is cut for at least: a verify pass


@dataclass(frozen=True, kw_only=True, slots=True)
class StepSize:
    """What one step asks for."""

    num_tokens: int
    num_seqs: int
    num_rows: int
    num_checks: int

    @classmethod
    def of(cls, chunks: Sequence[Chunk], checks: Sequence[SequenceCheck]) -> StepSize:
        return cls(
            num_tokens=sum(len(chunk.token_ids) for chunk in chunks),
            num_seqs=len(chunks),
            num_rows=sum(chunk.num_logits for chunk in chunks),
            num_checks=len(checks),
        )


@dataclass(frozen=True, order=True, slots=True)
class Bucket:
    """One padded size. A step that fits leaves the rest empty: sequences without tokens, tokens without a slot."""

    num_tokens: int
    num_seqs: int
    num_rows: int  # tokens whose logits are computed

    @property
    def query_len(self) -> int:
        """Tokens of one sequence that attention is cut for; others work too, more slowly."""
        return min(self.num_tokens, max(FEWEST_QUERIES, -(-self.num_tokens // self.num_seqs)))

    def fits(self, step: StepSize) -> bool:
        """Whether the step goes in. A padded sequence owns no row, but looks at the one after the last used."""
        num_rows = step.num_rows + (step.num_checks < self.num_seqs)
        return step.num_tokens <= self.num_tokens and step.num_seqs <= self.num_seqs and num_rows <= self.num_rows


def make_buckets(*, max_num_seqs: int, max_num_tokens: int) -> tuple[Bucket, ...]:
    """Every size worth a graph, smallest first; each batch of up to `max_num_seqs` sequences fits one of them."""
    assert max_num_tokens >= max_num_seqs, "each sequence needs a token"
    most = min(max_num_tokens, max(MOST_TOKENS, max_num_seqs))
    return tuple(
        sorted(
            Bucket(num_tokens, num_seqs, min(num_tokens, num_seqs * ROWS_PER_SEQUENCE))
            for num_seqs in _sequence_counts(max_num_seqs)
            for num_tokens in _token_counts(most)
            if num_tokens >= num_seqs
        )
    )


def choose_bucket(buckets: Iterable[Bucket], step: StepSize) -> Bucket | None:
    """The first of the sorted buckets that the step fits; None if it fits none."""
    return next((bucket for bucket in buckets if bucket.fits(step)), None)


def padded_count(most: int) -> int:
    """The largest padded number of tokens that is at most so many; a step of one more may cost as much as the next."""
    return max((count for count in _token_counts(MOST_TOKENS) if count <= most), default=most)


def _sequence_counts(most: int) -> list[int]:
    """Powers of four: a padded sequence costs an empty program of attention, not a token."""
    counts = [1]
    while counts[-1] * 4 < most:
        counts.append(counts[-1] * 4)
    return counts if counts[-1] == most else [*counts, most]


def _token_counts(most: int) -> list[int]:
    """Every count of a pass or two, where padding costs as much as tokens; then in steps that waste at most a half."""
    counts = [*range(1, 9), 12, 16, 24, *range(32, 256, 32), *range(256, most, 128)]
    return [*(count for count in counts if count < most), most]
