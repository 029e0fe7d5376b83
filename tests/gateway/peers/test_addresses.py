"""Peers by address and by name."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gateway.peers.addresses import AddressBook, Endpoint, check_target, look_up


class Zone:
    """A resolver that answers what a test says."""

    def __init__(self, *answers: Sequence[str] | OSError) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append((host, port))
        answer = self._answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer


async def test_an_address_stands_for_itself_and_a_name_for_all_behind_it() -> None:
    zone = Zone(["10.0.0.1", "fd00::1"])
    book = AddressBook(["here:1", "dns:///verifiers.example:50051"], zone)
    assert book.endpoints == [Endpoint("here:1")]
    await book.refresh()
    assert zone.asked == [("verifiers.example", 50051)]
    assert book.endpoints == [
        Endpoint("here:1"),
        Endpoint("10.0.0.1:50051", "verifiers.example"),
        Endpoint("[fd00::1]:50051", "verifiers.example"),
    ]


async def test_who_is_no_longer_named_goes_and_a_failing_resolver_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    down = OSError("no answer")
    book = AddressBook(["dns:///a:1"], Zone(["10.0.0.1", "10.0.0.2"], down, down, ["10.0.0.2"]))
    for _ in range(3):
        await book.refresh()
    assert [one.address for one in book.endpoints] == ["10.0.0.1:1", "10.0.0.2:1"]
    assert caplog.text.count("a:1 cannot be looked up: no answer") == 1
    await book.refresh()
    assert [one.address for one in book.endpoints] == ["10.0.0.2:1"]


async def test_the_systems_resolver_is_asked() -> None:
    assert "127.0.0.1" in await look_up("localhost", 1)


@pytest.mark.parametrize(
    "target", ["host", "host:0", "host:x", ":1", "dns:///host", "dns://8.8.8.8/host:1", "dns:///:1"]
)
def test_a_target_that_is_none_is_named(target: str) -> None:
    with pytest.raises(ValueError, match=r"verifiers holds .* each must be host:port, or dns:///name:port"):
        check_target("verifiers", target)


@pytest.mark.parametrize("target", ["host:1", "127.0.0.1:65535", "dns:///name.example:50051"])
def test_a_good_target_passes(target: str) -> None:
    check_target("verifiers", target)
