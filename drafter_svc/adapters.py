"""Which adapters a drafter holds, and who uses them. Knows names and slots; no tensors, no files, no sequences.

A sequence keeps the adapter that it began with: an adapter that is unloaded or replaced while in use takes no new
sequences, and its slot is free when its last one has ended.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, Protocol

from slipstream.errors import Exhausted, InvalidRequest, UnknownModel
from slipstream.exchange import AdapterInfo, AdapterList

_LOG = logging.getLogger(__name__)

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class AdapterStore(Protocol):
    """Where their weights are: AdapterSlots of slipstream.models."""

    @property
    def num_slots(self) -> int: ...

    @property
    def bytes_per_slot(self) -> int: ...

    def fill(self, slot: int, adapter: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class LoadAdapter:
    name: str
    path: str  # where it was read from, for the record
    weights: Any  # as the store takes them; has `rank`


@dataclass(frozen=True, slots=True)
class UnloadAdapter:
    name: str


@dataclass(frozen=True, slots=True)
class ListAdapters:
    """Changes nothing."""


AdapterOrder = LoadAdapter | UnloadAdapter | ListAdapters


@dataclass(frozen=True, slots=True)
class AdapterAnswer:
    """What there is after the order, or why it was refused."""

    outcome: AdapterList | Exception


@dataclass(slots=True)
class _Held:
    name: str
    path: str
    rank: int
    last_used: int
    num_sequences: int = 0
    draining: bool = False


@dataclass(slots=True)
class Adapters:
    store: AdapterStore | None  # None: the proposer takes none
    _held: dict[int, _Held] = field(default_factory=dict)  # by slot
    _ticks: count[int] = field(default_factory=count)

    def answer(self, order: AdapterOrder) -> AdapterAnswer:
        try:
            match order:
                case LoadAdapter():
                    self.load(order)
                case UnloadAdapter(name):
                    self.unload(name)
        except (InvalidRequest, UnknownModel, Exhausted) as error:
            return AdapterAnswer(error)
        return AdapterAnswer(self.listed())

    def load(self, order: LoadAdapter) -> None:
        """Takes the place of one of its name, else a free slot, else that of the one longest not used."""
        if not _NAME.fullmatch(order.name):
            raise InvalidRequest(f"adapter name is {order.name!r}; it must be 1..64 letters, digits or . _ -")
        if self.store is None:
            raise InvalidRequest("this drafter has no room for adapters; start it with --adapters-dir or --adapter")
        current = self._current(order.name)
        slot = self._slot_for_new() if current is None or self._held[current].num_sequences else current
        if current is not None:
            self._retire(current)
        self.store.fill(slot, order.weights)
        self._held[slot] = _Held(order.name, order.path, order.weights.rank, next(self._ticks))

    def unload(self, name: str) -> None:
        slot = self._current(name)
        if slot is None:
            raise self._unknown(name)
        self._retire(slot)

    def acquire(self, name: str) -> int | None:
        """The slot for a sequence that asks for `name`, held until it is released; None if it asks for no adapter."""
        if not name:
            return None
        slot = self._current(name)
        if slot is None:
            raise self._unknown(name)
        held = self._held[slot]
        held.num_sequences += 1
        held.last_used = next(self._ticks)
        return slot

    def release(self, slot: int | None) -> None:
        if slot is None:
            return
        held = self._held[slot]
        held.num_sequences -= 1
        if held.draining and not held.num_sequences:
            del self._held[slot]

    def listed(self) -> AdapterList:
        infos = [
            AdapterInfo(held.name, held.path, held.rank, held.num_sequences, held.draining)
            for held in self._held.values()
        ]
        infos.sort(key=lambda info: (info.name, info.draining))
        if self.store is None:
            return AdapterList(())
        return AdapterList(tuple(infos), self.store.num_slots, self.store.bytes_per_slot)

    def _current(self, name: str) -> int | None:
        """The slot of the adapter that new sequences of this name get."""
        return next((slot for slot, held in self._held.items() if held.name == name and not held.draining), None)

    def _retire(self, slot: int) -> None:
        if self._held[slot].num_sequences:
            self._held[slot].draining = True
        else:
            del self._held[slot]

    def _slot_for_new(self) -> int:
        assert self.store is not None
        if free := [slot for slot in range(self.store.num_slots) if slot not in self._held]:
            return free[0]
        idle = [slot for slot, held in self._held.items() if not held.num_sequences]
        if not idle:
            names = ", ".join(sorted(held.name for held in self._held.values()))
            raise Exhausted(f"all {self.store.num_slots} adapters are in use: {names}; raise --max-adapters, or wait")
        slot = min(idle, key=lambda slot: self._held[slot].last_used)
        _LOG.warning("adapter %s gives up its place: it was not in use for longest", self._held[slot].name)
        del self._held[slot]
        return slot

    def _unknown(self, name: str) -> UnknownModel:
        names = sorted(held.name for held in self._held.values() if not held.draining)
        there = ", ".join(names) or "none"
        return UnknownModel(f"adapter {name!r} is not loaded here ({there} is); `slipstream adapters load` loads one")
