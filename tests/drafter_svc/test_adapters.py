"""The drafter's table of adapters: who gets which slot, who gives way, and what is in use stays."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from drafter_svc.adapters import AdapterAnswer, Adapters, ListAdapters, LoadAdapter, UnloadAdapter
from slipstream.errors import Exhausted, InvalidRequest, UnknownModel
from slipstream.exchange import AdapterInfo, AdapterList


@dataclass(frozen=True)
class Weights:
    text: str
    rank: int = 8


@dataclass
class Store:
    num_slots: int = 2
    bytes_per_slot: int = 100
    slots: dict[int, str] = field(default_factory=dict)

    def fill(self, slot: int, adapter: Weights) -> None:
        self.slots[slot] = adapter.text


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def adapters(store: Store) -> Adapters:
    return Adapters(store)


def load(adapters: Adapters, name: str, text: str = "") -> None:
    adapters.load(LoadAdapter(name, f"/adapters/{name}", Weights(text or name)))


def used(adapters: Adapters, name: str) -> int:
    slot = adapters.acquire(name)
    assert slot is not None
    return slot


def names(adapters: Adapters) -> list[tuple[str, int, bool]]:
    return [(info.name, info.num_sequences, info.draining) for info in adapters.listed().adapters]


def test_a_sequence_gets_the_slot_of_the_adapter_that_it_names(adapters: Adapters, store: Store) -> None:
    load(adapters, "legal")
    load(adapters, "code")
    assert store.slots[used(adapters, "code")] == "code"
    assert store.slots[used(adapters, "legal")] == "legal"
    assert adapters.acquire("") is None


def test_one_that_is_not_loaded_is_refused_by_name(adapters: Adapters) -> None:
    load(adapters, "code")
    with pytest.raises(UnknownModel, match=r"'legal' is not loaded here \(code is\)"):
        adapters.acquire("legal")
    with pytest.raises(UnknownModel, match="legal"):
        adapters.unload("legal")


def test_the_one_longest_unused_gives_way(adapters: Adapters) -> None:
    load(adapters, "legal")
    load(adapters, "code")
    adapters.release(adapters.acquire("legal"))
    load(adapters, "mail")
    assert names(adapters) == [("legal", 0, False), ("mail", 0, False)]


def test_what_is_in_use_never_gives_way(adapters: Adapters, store: Store) -> None:
    load(adapters, "legal")
    load(adapters, "code")
    slots = [adapters.acquire("legal"), adapters.acquire("code")]
    with pytest.raises(Exhausted, match="all 2 adapters are in use: code, legal"):
        load(adapters, "mail")
    adapters.release(slots[0])
    load(adapters, "mail")
    assert sorted(store.slots.values()) == ["code", "mail"]


def test_unloading_lets_running_sequences_end_and_takes_no_new_ones(adapters: Adapters) -> None:
    load(adapters, "legal")
    slot = adapters.acquire("legal")
    adapters.unload("legal")
    assert names(adapters) == [("legal", 1, True)]
    with pytest.raises(UnknownModel):
        adapters.acquire("legal")
    adapters.release(slot)
    assert names(adapters) == []


def test_a_newer_one_of_a_name_in_use_is_for_new_sequences(adapters: Adapters, store: Store) -> None:
    load(adapters, "legal", "old")
    old = used(adapters, "legal")
    load(adapters, "legal", "new")
    new = used(adapters, "legal")
    assert (store.slots[old], store.slots[new]) == ("old", "new")
    adapters.release(old)
    assert names(adapters) == [("legal", 1, False)]


def test_a_newer_one_of_a_name_not_in_use_takes_its_place(adapters: Adapters, store: Store) -> None:
    load(adapters, "legal", "old")
    load(adapters, "code")
    load(adapters, "legal", "new")
    assert sorted(store.slots.values()) == ["code", "new"]


def test_a_newer_one_without_room_leaves_the_old_one_as_it_is(store: Store) -> None:
    store.num_slots = 1
    adapters = Adapters(store)
    load(adapters, "legal", "old")
    adapters.acquire("legal")
    with pytest.raises(Exhausted):
        load(adapters, "legal", "new")
    assert names(adapters) == [("legal", 1, False)]


@pytest.mark.parametrize("name", ["", "../up", "a/b", "-x", "a" * 65, "ü"])
def test_names_are_plain(adapters: Adapters, name: str) -> None:
    with pytest.raises(InvalidRequest, match="adapter name is"):
        load(adapters, name)


def test_orders_are_answered_with_what_there_is_or_why_not(adapters: Adapters) -> None:
    loaded = adapters.answer(LoadAdapter("legal", "/adapters/legal", Weights("legal")))
    held = AdapterList((AdapterInfo("legal", "/adapters/legal", 8),), 2, 100)
    assert loaded == adapters.answer(ListAdapters()) == AdapterAnswer(held)
    assert isinstance(adapters.answer(UnloadAdapter("code")).outcome, UnknownModel)


def test_a_proposer_without_room_takes_none() -> None:
    adapters = Adapters(None)
    assert adapters.listed() == AdapterList(())
    with pytest.raises(InvalidRequest, match="--adapters-dir"):
        load(adapters, "legal")
    with pytest.raises(UnknownModel, match=r"\(none is\)"):
        adapters.acquire("legal")
