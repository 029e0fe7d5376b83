"""Arrays as they travel: raw little-endian bytes. Knows token ids and the laws of drafted tokens; no messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from slipstream.errors import InvalidRequest
from slipstream.exchange import LAW_TOTAL, SparseLaw

ID: Final[np.dtype[np.int32]] = np.dtype("<i4")
COUNT: Final[np.dtype[np.uint16]] = np.dtype("<u2")
KIND: Final[np.dtype[np.uint8]] = np.dtype("u1")

Number = TypeVar("Number", bound=np.generic)


def ids_to_wire(token_ids: Sequence[int]) -> bytes:
    try:
        return np.asarray(token_ids, dtype=ID).tobytes()
    except OverflowError:
        raise InvalidRequest(f"token id {max(token_ids, key=abs)} does not fit in 32 bits") from None


def ids_from_wire(data: bytes, field: str) -> tuple[int, ...]:
    return tuple(read(data, ID, field).tolist())


def read(data: bytes, dtype: np.dtype[Number], field: str) -> npt.NDArray[Number]:
    if len(data) % dtype.itemsize:
        raise InvalidRequest(f"{field} is {len(data)} bytes long; it must be a multiple of {dtype.itemsize}")
    return np.frombuffer(data, dtype=dtype)


def join(arrays: Iterable[npt.NDArray[Any]], dtype: np.dtype[Any]) -> bytes:
    return b"".join(array.astype(dtype, copy=False).tobytes() for array in arrays)


def split_laws(
    sizes: npt.NDArray[np.uint16],  # [num_laws]
    token_ids: npt.NDArray[np.int32],  # [sum of sizes]
    counts: npt.NDArray[np.uint16],  # [sum of sizes]
    drawn: npt.NDArray[np.int32],  # [num_laws], the token that each law gave
) -> list[SparseLaw]:
    """Raises InvalidRequest if a law is not a distribution that its token can come from."""
    if sizes.size != drawn.size:
        raise InvalidRequest(f"law_sizes has {sizes.size} entries for {drawn.size} sparse tokens; send one per token")
    ends = np.cumsum(sizes, dtype=np.int64)
    total = int(ends[-1]) if ends.size else 0
    if not (total == token_ids.size == counts.size):
        raise InvalidRequest(
            f"law_token_ids has {token_ids.size} entries and law_counts {counts.size}; law_sizes says {total}"
        )
    if ends.size:
        _check_laws(ends - sizes, token_ids, counts, drawn)
    starts = (ends - sizes).tolist()
    return [
        SparseLaw(token_ids[start:end], counts[start:end]) for start, end in zip(starts, ends.tolist(), strict=True)
    ]


def _check_laws(
    starts: npt.NDArray[np.int64],  # [num_laws], of each law in the next two
    token_ids: npt.NDArray[np.int32],
    counts: npt.NDArray[np.uint16],
    drawn: npt.NDArray[np.int32],  # [num_laws]
) -> None:
    sizes = np.diff(starts, append=token_ids.size)
    if int(sizes.min()) == 0 or int(counts.min()) == 0:
        raise InvalidRequest("a law is empty or holds a count of 0; send only tokens that can be drawn")
    totals = np.add.reduceat(counts.astype(np.int64), starts)
    if (totals != LAW_TOTAL).any():
        wrong = int(totals[totals != LAW_TOTAL][0])
        raise InvalidRequest(f"the counts of a law sum to {wrong}; they must sum to {LAW_TOTAL}")
    owners = np.repeat(np.arange(sizes.size), sizes)
    if np.unique(owners << 32 | token_ids.astype(np.int64)).size != token_ids.size:
        raise InvalidRequest("a law names a token twice; send each token once")
    if not np.logical_or.reduceat(token_ids == np.repeat(drawn, sizes), starts).all():
        raise InvalidRequest("a drafted token is not in its own law; send the law that it was drawn from")
