"""Messages from rank 0 to the others through shared memory: a few microseconds each. Knows bytes, not what they say.

A ring of slots that all readers read. Two semaphores for each reader count the slots it may still read and those that
the writer may write again, so that a reader without messages sleeps and a slow one holds the writer up. Each slot has
the number of its turn: whoever finds another one has lost its place, and must not go on.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from multiprocessing.context import SpawnContext
from multiprocessing.shared_memory import SharedMemory
from multiprocessing.synchronize import Semaphore

from slipstream.parallel.failure import RanksFailed

NUM_SLOTS = 8
SLOT_BYTES = 256 << 10
_HEADER = struct.Struct("<QII")  # number of the slot's turn, bytes in it, 1 if the message goes on in the next slot
_ROOM = SLOT_BYTES - _HEADER.size


@dataclass(frozen=True, slots=True)
class ReaderEnd:
    """What one reader is started with."""

    name: str  # of the shared memory
    written: Semaphore
    free: Semaphore


class RingWriter:
    """Rank 0's end. `seconds` is how long a reader may hold it up."""

    def __init__(self, context: SpawnContext, num_readers: int, seconds: float) -> None:
        self._memory = SharedMemory(create=True, size=NUM_SLOTS * SLOT_BYTES)
        self._seconds = seconds
        self._named = True
        self._turn = 0
        self.ends = [
            ReaderEnd(self._memory.name, context.Semaphore(0), context.Semaphore(NUM_SLOTS)) for _ in range(num_readers)
        ]

    def send(self, message: bytes) -> None:
        """Returns when the message is in the ring; RanksFailed if a reader has stopped reading."""
        parts = [message[first : first + _ROOM] for first in range(0, len(message), _ROOM)] or [b""]
        for index, part in enumerate(parts):
            self._write(part, index < len(parts) - 1)

    def unlink(self) -> None:
        """Gives up the memory's name, once every reader has it: nothing is left behind then, however all ends."""
        if self._named:
            self._named = False
            self._memory.unlink()

    def close(self) -> None:
        self.unlink()
        self._memory.close()

    def _write(self, part: bytes, goes_on: bool) -> None:
        for rank, end in enumerate(self.ends, start=1):
            if not end.free.acquire(timeout=self._seconds):
                raise RanksFailed(f"rank {rank} has not finished its step for {self._seconds:g} s")
        start = self._turn % NUM_SLOTS * SLOT_BYTES
        header = _HEADER.pack(self._turn, len(part), goes_on)
        _buffer(self._memory)[start : start + len(header) + len(part)] = header + part
        self._turn += 1
        for end in self.ends:
            end.written.release()


class RingReader:
    """Another rank's end. `spin_seconds` is how long it looks for a message before it sleeps."""

    def __init__(self, end: ReaderEnd, spin_seconds: float) -> None:
        self._memory = SharedMemory(end.name)
        self._end, self._spin_seconds = end, spin_seconds
        self._turn = 0

    def receive(self) -> bytes:
        """Waits for the next message, for as long as it takes."""
        parts, goes_on = [], True
        while goes_on:
            part, goes_on = self._read()
            parts.append(part)
        return b"".join(parts)

    def close(self) -> None:
        self._memory.close()

    def _read(self) -> tuple[bytes, bool]:
        self._wait()
        start = self._turn % NUM_SLOTS * SLOT_BYTES
        turn, length, goes_on = _HEADER.unpack_from(_buffer(self._memory), start)
        if turn != self._turn:
            raise RanksFailed(f"message {self._turn} of rank 0 is lost, in its place is {turn}")
        start += _HEADER.size
        part = bytes(_buffer(self._memory)[start : start + length])
        self._turn += 1
        self._end.free.release()
        return part, bool(goes_on)

    def _wait(self) -> None:
        until = time.perf_counter() + self._spin_seconds
        while time.perf_counter() < until:
            if self._end.written.acquire(block=False):
                return
        self._end.written.acquire()


def _buffer(memory: SharedMemory) -> memoryview:
    assert memory.buf is not None, "used after it was closed"
    return memory.buf
