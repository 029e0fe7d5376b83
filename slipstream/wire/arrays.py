"""Arrays as they travel: raw little-endian bytes. Knows token ids and the laws of drafted tokens; no messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from slipstream.errors import InvalidRequest
from slipstream.exchange import SparseLaw

ID: Final[np.dtype[np.int32]] = np.dtype("<i4")
COUNT: Final[np.dtype[np.uint16]] = np.dtype("<u2")
BIAS: Final[np.dtype[np.float32]] = np.dtype("<f4")
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


def words_from_wire(
    lengths: npt.NDArray[np.uint16],  # [num_words]
    token_ids: npt.NDArray[np.int32],  # [sum of lengths]
    field: str,
) -> tuple[tuple[int, ...], ...]:
    ends = np.cumsum(lengths, dtype=np.int64)
    total = int(ends[-1]) if ends.size else 0
    if total != token_ids.size:
        raise InvalidRequest(f"{field} has {token_ids.size} token ids; the lengths of its words say {total}")
    ids = token_ids.tolist()
    return tuple(tuple(ids[end - length : end]) for end, length in zip(ends.tolist(), lengths.tolist(), strict=True))


def join(arrays: Iterable[npt.NDArray[Any]], dtype: np.dtype[Any]) -> bytes:
    return b"".join(array.astype(dtype, copy=False).tobytes() for array in arrays)


def split_laws(
    sizes: npt.NDArray[np.uint16],  # [num_laws]
    token_ids: npt.NDArray[np.int32],  # [sum of sizes]
    counts: npt.NDArray[np.uint16],  # [sum of sizes]
) -> list[SparseLaw]:
    """Raises InvalidRequest if the arrays disagree; whether each law is a distribution is for its user to judge."""
    ends = np.cumsum(sizes, dtype=np.int64)
    total = int(ends[-1]) if ends.size else 0
    if not (total == token_ids.size == counts.size):
        raise InvalidRequest(
            f"law_token_ids has {token_ids.size} entries and law_counts {counts.size}; law_sizes says {total}"
        )
    starts = (ends - sizes).tolist()
    return [
        SparseLaw(token_ids[start:end], counts[start:end]) for start, end in zip(starts, ends.tolist(), strict=True)
    ]
