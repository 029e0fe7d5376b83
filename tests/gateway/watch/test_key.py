"""The operator's key: what opens, and what a setting must look like."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from gateway.watch import key
from slipstream.errors import Unauthenticated

HASH = hashlib.sha256(b"secret").hexdigest()


def test_the_key_opens() -> None:
    key.require_key("Bearer secret", HASH)
    key.require_key("bearer  secret ", HASH)


@pytest.mark.parametrize(
    "given", ["", "secret", "Bearer", "Bearer secre", "Basic secret", f"Bearer {HASH}", "Bearer ü", "Bearer \udcff"]
)
def test_nothing_else_does(given: str) -> None:
    with pytest.raises(Unauthenticated, match="operator's key"):
        key.require_key(given, HASH)


def test_an_empty_hash_is_nobodys_key() -> None:
    with pytest.raises(Unauthenticated):
        key.require_key("Bearer ", "")


def test_it_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    original = hmac.compare_digest
    monkeypatch.setattr(key.hmac, "compare_digest", lambda a, b: compared.append((a, b)) or original(a, b))
    key.require_key("Bearer secret", HASH)
    assert compared == [(HASH, HASH)]


@pytest.mark.parametrize("value", ["secret", HASH.upper(), HASH[:-1], HASH + "0"])
def test_a_setting_that_is_no_hash_is_refused_and_not_repeated(value: str) -> None:
    with pytest.raises(ValueError, match="watch_key_sha256 has") as caught:
        key.check_key_hash("watch_key_sha256", value)
    assert value not in str(caught.value)


@pytest.mark.parametrize("value", ["", HASH])
def test_a_hash_or_nothing_is_good(value: str) -> None:
    key.check_key_hash("watch_key_sha256", value)
