"""Who may call, and how each tenant's text is drafted. Knows hashed keys and policies; knows no request."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from slipstream.errors import Unauthenticated
from slipstream.proposers.ngram import NAME as NGRAM
from slipstream.request import VerificationMode

NONE = "none"
DRAFT_MODEL = "draft_model"  # as a drafter service calls it
PROPOSERS = (NONE, NGRAM, DRAFT_MODEL)
MODES = {"ratio": VerificationMode.RATIO, "coupled": VerificationMode.COUPLED}
MAX_DRAFT_TOKENS = 64

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Tenant:
    """One tenant's keys, drafting policy and limits. Raises ValueError naming field and value."""

    name: str
    key_sha256: tuple[str, ...] = ()  # hex SHA-256 of each API key
    anonymous: bool = False  # serves callers without a key; then there are no keys
    proposers: tuple[str, ...] = (NGRAM,)  # in order of preference; "none" alone switches drafting off
    mode: str = "ratio"  # or "coupled": how drafts are verified (docs/exactness.md)
    num_draft_tokens: int = 4  # K: most draft tokens in one verify pass
    fan_out: int = 4  # outcomes that a drafter drafts for ahead of each commit
    max_wait_ms: float = 50.0  # longest wait of a lone sequence for a draft; the verifier waits less if it pays less
    max_tokens: int = 4096  # largest output
    max_concurrent: int = 256  # requests at one time

    def __post_init__(self) -> None:
        _require(isinstance(self.name, str) and bool(self.name), "name", self.name, "a text that is not empty")
        self._check_keys()
        self._check_proposers()
        _require(self.mode in MODES, "mode", self.mode, f"one of {', '.join(MODES)}")
        for field, low, high in (
            ("num_draft_tokens", 0, MAX_DRAFT_TOKENS),
            ("fan_out", 0, 64),
            ("max_tokens", 1, 1 << 20),
            ("max_concurrent", 1, 1 << 20),
        ):
            value = getattr(self, field)
            _require(_is_int(value) and low <= value <= high, field, value, f"a whole number in {low}..{high}")
        wait = self.max_wait_ms
        _require(_is_number(wait) and 0 <= wait <= 1000, "max_wait_ms", wait, "milliseconds in 0..1000")

    def _check_keys(self) -> None:
        for key in self.key_sha256:
            valid = isinstance(key, str) and bool(_SHA256.fullmatch(key))
            _require(valid, "key_sha256", key, "64 hex digits in lower case: the SHA-256 of an API key")
        _require(isinstance(self.anonymous, bool), "anonymous", self.anonymous, "true or false")
        if self.anonymous == bool(self.key_sha256):
            raise ValueError(
                f"anonymous is {self.anonymous} with {len(self.key_sha256)} entries in key_sha256; "
                "give keys, or `anonymous: true` to serve callers without one"
            )

    def _check_proposers(self) -> None:
        _require(bool(self.proposers), "proposers", list(self.proposers), f"a list of {', '.join(PROPOSERS)}")
        for proposer in self.proposers:
            _require(proposer in PROPOSERS, "proposers", proposer, f"a list of {', '.join(PROPOSERS)}")
        alone = NONE not in self.proposers or len(self.proposers) == 1
        distinct = len(set(self.proposers)) == len(self.proposers)
        _require(alone and distinct, "proposers", list(self.proposers), "without repetition, and `none` only by itself")

    @property
    def active_proposers(self) -> tuple[str, ...]:
        """Who really drafts: none of them if K is 0."""
        return tuple(name for name in self.proposers if name != NONE and self.num_draft_tokens)

    @property
    def verification_mode(self) -> VerificationMode:
        return MODES[self.mode]


class Tenants:
    """All tenants of one gateway. Raises ValueError if two share a name or a key, or two are anonymous."""

    def __init__(self, tenants: Sequence[Tenant]) -> None:
        self._tenants = tuple(tenants)
        _require_distinct("name", [tenant.name for tenant in tenants])
        _require_distinct("key_sha256", [key for tenant in tenants for key in tenant.key_sha256])
        _require_distinct("anonymous", ["true" for tenant in tenants if tenant.anonymous])

    @property
    def all(self) -> tuple[Tenant, ...]:
        return self._tenants

    def authenticate(self, authorization: str) -> Tenant:
        """The tenant of `authorization`, the value of that metadata entry; empty if the caller sent none."""
        if not authorization:
            return self._anonymous()
        scheme, _, key = authorization.partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise Unauthenticated("metadata `authorization` must be `Bearer <key>`")
        digest = hashlib.sha256(key.strip().encode()).hexdigest()
        # Every key is compared, each in constant time: the answer's time tells nothing about keys.
        matches = [t for t in self._tenants for known in t.key_sha256 if hmac.compare_digest(digest, known)]
        if not matches:
            raise Unauthenticated("the API key belongs to no tenant; check metadata `authorization: Bearer <key>`")
        return matches[0]

    def _anonymous(self) -> Tenant:
        for tenant in self._tenants:
            if tenant.anonymous:
                return tenant
        raise Unauthenticated("an API key is needed; send metadata `authorization: Bearer <key>`")


def default_tenants(*, remote: bool) -> Tenants:
    """What serves when no file is given: everybody, drafted by n-gram and, if there is a drafter, its draft model."""
    proposers = (DRAFT_MODEL, NGRAM) if remote else (NGRAM,)
    return Tenants([Tenant(name="default", anonymous=True, proposers=proposers)])


def load_tenants(path: Path) -> Tenants:
    """Raises ValueError with file, field and value."""
    try:
        document = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: is not YAML: {' '.join(str(error).split())}") from error
    entries = document.get("tenants") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not entries:
        raise ValueError(f"{path}: must hold `tenants:` with a list of at least one tenant")
    tenants = [_tenant(entry, f"{path}: tenants[{index}]") for index, entry in enumerate(entries)]
    try:
        return Tenants(tenants)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _tenant(entry: Any, where: str) -> Tenant:
    known = [field.name for field in fields(Tenant)]
    if not isinstance(entry, dict) or "name" not in entry:
        raise ValueError(f"{where} is {entry!r}; it must hold fields, `name` among them")
    if unknown := [key for key in entry if key not in known]:
        raise ValueError(f"{where} ({entry['name']}): unknown field {unknown[0]!r}; known are {', '.join(known)}")
    try:
        return Tenant(**{key: _as_tuple(key, value) for key, value in entry.items()})
    except ValueError as error:
        raise ValueError(f"{where} ({entry['name']}): {error}") from error


def _as_tuple(field: str, value: Any) -> Any:
    if field not in ("key_sha256", "proposers"):
        return value
    _require(isinstance(value, list), field, value, "a list")
    return tuple(value)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return _is_int(value) or isinstance(value, float)


def _require(condition: bool, field: str, value: object, allowed: str) -> None:
    if not condition:
        raise ValueError(f"{field} is {value!r}; it must be {allowed}")


def _require_distinct(field: str, values: list[str]) -> None:
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"{field} {value!r} is given to two tenants; it must be one tenant's only")
