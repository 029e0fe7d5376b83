"""Packs the checks of a batch into one table of 32-bit words, so that one copy brings them to the GPU. Knows no logits.

A row per draft token and one for the token after them, as in sampling/check_rows.py; a row's law follows its columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch

from slipstream.exchange import DraftToken, SparseLaw
from slipstream.sampling.check import SequenceCheck
from slipstream.sampling.check_rows import NEVER, PAD
from slipstream.sampling.philox import Stream, random_words, uniform
from slipstream.sampling.target_law import SMALLEST_TEMPERATURE


class RowKind(IntEnum):
    """How a row is decided."""

    GREEDY = 0  # by match with the likeliest token
    MATCH = 1  # by match with what target and noise choose
    RATIO = 2  # by its law; the recovered token is drawn only if this row ends the sequence
    DRAW = 3  # no draft token: drawn only if this row ends the sequence


class Column(IntEnum):
    """Words of a row; those named in FLOATS hold the bits of an fp32."""

    KIND = 0
    DRAFT_ID = 1
    POSITION = 2
    SAMPLE_INDEX = 3
    SEED_LOW = 4
    SEED_HIGH = 5
    LIMITED = 6  # 1 where top_k, top_p or min_p removes tokens
    TOP_K = 7  # 0 keeps every token
    LAW_LENGTH = 8
    TEMPERATURE = 9
    TOP_P = 10
    MIN_P_REACH = 11  # -log(min_p): how far below the largest shaped logit a token may lie
    UNIFORM = 12
    DRAFT_PROB = 13


NUM_COLUMNS = 16
FLOATS = (Column.TEMPERATURE, Column.TOP_P, Column.MIN_P_REACH, Column.UNIFORM, Column.DRAFT_PROB)
ONE = int(np.float32(1).view(np.int32))  # as a column of FLOATS holds it


def _padding_row() -> npt.NDArray[np.int32]:
    row = np.zeros(NUM_COLUMNS, dtype=np.int32)
    row[Column.DRAFT_ID] = PAD
    row[[Column.TEMPERATURE, Column.TOP_P]] = ONE
    return row


PADDING_ROW = _padding_row()  # belongs to no check: greedy, without a draft token, so that nothing can be accepted


class Needs(Enum):
    """What a table asks of verification, from the least to the most; whoever can do more can do less."""

    MATCH = "match"  # all rows are matched, none limited: nothing is drawn after they are decided
    LAWS = "laws"
    MIN_P = "min_p"  # limits that need no search
    LIMITS = "limits"

    @classmethod
    def of_checks(cls, checks: Sequence[SequenceCheck], words: npt.NDArray[np.int32]) -> Needs:
        """The same as `of` their words, sooner."""
        if all(check.matched_only for check in checks) and not words[:, Column.LIMITED].any():
            return cls.MATCH
        return cls.of(words)

    @classmethod
    def of(cls, words: npt.NDArray[np.int32]) -> Needs:
        if words[:, Column.LIMITED].any():
            return cls.LIMITS if is_searched(words) else cls.MIN_P
        return cls.LAWS if (words[:, Column.KIND] >= RowKind.RATIO).any() else cls.MATCH


@dataclass(frozen=True, slots=True)
class CheckTable:
    words: torch.Tensor  # [num_rows, width] int32: columns, then law token ids, then law counts
    starts: torch.Tensor  # [num_seqs + 1] int32: sequence i owns rows starts[i] : starts[i + 1]
    law_width: int
    max_rows: int  # of one sequence
    limited: bool  # some row has limits
    searched: bool  # some row has top_k or top_p, whose limits must be searched for
    drawn: bool  # some token is drawn after the rows are decided

    @property
    def num_rows(self) -> int:
        return self.words.shape[0]

    @property
    def num_seqs(self) -> int:
        return len(self.starts) - 1


def pack_checks(checks: Sequence[SequenceCheck], vocab_size: int, device: torch.device) -> CheckTable:
    """The table of at least one check, on the device after one copy."""
    words = check_words(checks, vocab_size)
    starts = np.cumsum([0, *(len(check.draft) + 1 for check in checks)], dtype=np.int32)
    flat = torch.from_numpy(np.concatenate((starts, words.ravel()))).to(device, non_blocking=True)
    return CheckTable(
        words=flat[len(starts) :].view(words.shape),
        starts=flat[: len(starts)],
        law_width=(words.shape[1] - NUM_COLUMNS) // 2,
        max_rows=1 + max(len(check.draft) for check in checks),
        limited=bool(words[:, Column.LIMITED].any()),
        searched=is_searched(words),
        drawn=bool((words[:, Column.KIND] >= RowKind.RATIO).any()),
    )


def is_searched(words: npt.NDArray[np.int32]) -> bool:
    """Whether some row has a limit that must be searched for."""
    return bool((words[:, Column.TOP_K] > 0).any() or (words[:, Column.TOP_P] != ONE).any())


def check_words(checks: Sequence[SequenceCheck], vocab_size: int) -> npt.NDArray[np.int32]:
    """The table's rows: columns, then as many law token ids and as many counts as the longest law has."""
    if not checks:
        return np.zeros((0, NUM_COLUMNS), dtype=np.int32)
    columns = [sequence_columns(check, vocab_size) for check in checks for _ in range(len(check.draft) + 1)]
    words = np.concatenate(columns).reshape(-1, NUM_COLUMNS)
    positions = [check.base + offset for check in checks for offset in range(len(check.draft) + 1)]
    words.view(np.uint32)[:, Column.POSITION] = positions
    words[:, Column.DRAFT_ID] = [t.token_id if t else PAD for check in checks for t in (*check.draft, check.last_token)]
    if all(check.matched_only for check in checks):
        return words
    return _with_laws(words, checks)


def _with_laws(words: npt.NDArray[np.int32], checks: Sequence[SequenceCheck]) -> npt.NDArray[np.int32]:
    """The same with how each row is decided, and the laws of those that laws decide."""
    kinds = [_kind(check, token) for check in checks for token in (*check.draft, check.last_token)]
    words[:, Column.KIND] = kinds
    laws = _laws(checks)
    law_width = max((len(law.counts) for _, law, _, _ in laws), default=0)
    wide = np.zeros((len(words), NUM_COLUMNS + 2 * law_width), dtype=np.int32)
    wide[:, :NUM_COLUMNS] = words
    _write_laws(wide, laws, law_width)
    return wide


def sequence_columns(check: SequenceCheck, vocab_size: int) -> npt.NDArray[np.int32]:
    """What all rows of a sequence share at every step; not to be written to."""
    law = check.sampling
    return _sequence_columns(
        law.temperature, law.top_k, law.top_p, law.min_p, vocab_size, check.seed, check.sample_index
    )


# A sequence asks for the same at every step; whole settings may be long to compare and to keep.
@lru_cache(maxsize=4096)
def _sequence_columns(
    temperature: float, top_k: int, top_p: float, min_p: float, vocab_size: int, seed: int, sample_index: int
) -> npt.NDArray[np.int32]:
    words = _law_columns(temperature, top_k, top_p, min_p, vocab_size)
    words.view(np.uint32)[Column.SAMPLE_INDEX] = sample_index
    words[[Column.SEED_LOW, Column.SEED_HIGH]] = np.array([seed], dtype=np.uint64).view(np.int32)  # little-endian
    return words


def _law_columns(temperature: float, top_k: int, top_p: float, min_p: float, vocab_size: int) -> npt.NDArray[np.int32]:
    """The columns that settings alone decide."""
    greedy = temperature == 0
    floats = dict.fromkeys(FLOATS, 0.0) | {
        Column.TEMPERATURE: 1.0 if greedy else max(temperature, SMALLEST_TEMPERATURE),
        Column.TOP_P: 1.0,
        Column.MIN_P_REACH: math.inf,
    }
    row = [0] * NUM_COLUMNS
    row[Column.KIND] = RowKind.GREEDY if greedy else RowKind.MATCH
    if not greedy and (0 < top_k < vocab_size or top_p < 1 or min_p > 0):
        row[Column.LIMITED] = 1
        row[Column.TOP_K] = top_k if top_k < vocab_size else 0
        floats[Column.TOP_P] = top_p
        floats[Column.MIN_P_REACH] = -math.log(min_p) if min_p else math.inf
    for column, value in floats.items():
        row[column] = int(np.float32(value).view(np.int32))
    return np.array(row, dtype=np.int32)


def _kind(check: SequenceCheck, token: DraftToken | None) -> RowKind:
    if check.sampling.greedy:
        return RowKind.GREEDY
    if check.matched_only or (token and check.is_matched(token)):
        return RowKind.MATCH
    return RowKind.RATIO if token else RowKind.DRAW


_RowLaw = tuple[int, SparseLaw, SequenceCheck, int]  # row, the law that decides it, its check, its offset in that


def _laws(checks: Sequence[SequenceCheck]) -> list[_RowLaw]:
    laws: list[_RowLaw] = []
    first = 0
    for check in checks:
        if not check.matched_only:
            for offset, token in enumerate((*check.draft, check.last_token)):
                if token and token.law is not None and not check.is_matched(token):
                    laws.append((first + offset, token.law, check, offset))
        first += len(check.draft) + 1
    return laws


def _write_laws(words: npt.NDArray[np.int32], laws: Sequence[_RowLaw], law_width: int) -> None:
    for row, law, check, offset in laws:
        length = len(law.counts)
        words[row, Column.LAW_LENGTH] = length
        words[row, NUM_COLUMNS : NUM_COLUMNS + length] = law.token_ids
        words[row, NUM_COLUMNS + law_width : NUM_COLUMNS + law_width + length] = law.counts
        numbers = np.array(_acceptance(law, check, offset), dtype=np.float32)
        words[row, [Column.UNIFORM, Column.DRAFT_PROB]] = numbers.view(np.int32)


def _acceptance(law: SparseLaw, check: SequenceCheck, offset: int) -> tuple[np.float32, float]:
    """The number that decides about the draft token, and its probability under its law."""
    if offset == len(check.draft):
        return NEVER, 1.0
    u = uniform(random_words(check.accept_key, check.base + offset, check.sample_index, Stream.ACCEPT))
    return np.float32(u), law.probability(check.draft[offset].token_id)
