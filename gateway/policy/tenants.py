"""Who may call, and how each tenant's text is drafted. Knows hashed keys and policies; knows no request."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import yaml

from gateway.policy import rules
from gateway.policy.rules import Rule
from slipstream.errors import Unauthenticated, quoted
from slipstream.proposers.ngram import NAME as NGRAM
from slipstream.request import VerificationMode

NONE = "none"
AUTO = "auto"
DRAFT_MODEL = "draft_model"  # as a drafter service calls it
PARD = "pard"
EAGLE3 = "eagle3"
TRITONSERVER = "tritonserver"  # a model on NVIDIA Triton Inference Server, called by the gateway itself
PROPOSERS = (NGRAM, PARD, DRAFT_MODEL, EAGLE3, TRITONSERVER)  # all there are; what costs least first
MODES = {"ratio": VerificationMode.RATIO, "coupled": VerificationMode.COUPLED}
FIXED, GOODPUT = "fixed", "goodput"
DEFAULT_CONTROL: Final = GOODPUT  # where there is no file: on shared cores a fixed order costs throughput under load
MAX_DRAFT_TOKENS = 64
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C, six times as fast: streams wait meanwhile
MAX_COUNT: Final = 1 << 20
MAX_TEMPERATURE: Final = 1000.0  # a gate that nothing is above

RULES: Final[Mapping[str, Rule]] = {
    "name": rules.text(1),
    "key_sha256": rules.hashes("[0-9a-f]{64}", "64 hex digits in lower case: the SHA-256 of an API key"),
    "anonymous": rules.boolean(),
    "proposers": rules.names_in_order(PROPOSERS, (NONE,), AUTO),
    "control": rules.one_of((FIXED, GOODPUT)),
    "adapter": rules.text(0),
    "mode": rules.one_of(tuple(MODES)),
    "num_draft_tokens": rules.whole(0, MAX_DRAFT_TOKENS),
    "min_draft_tokens": rules.whole(0, MAX_DRAFT_TOKENS),
    "fan_out": rules.whole(0, 64),
    "max_wait_ms": rules.number(0, 1000, "milliseconds"),
    "off_above_temperature": rules.number(0, MAX_TEMPERATURE),
    "off_above_running": rules.whole(0, MAX_COUNT),
    "off_below_acceptance": rules.number(0, 1),
    "recent_output_tokens": rules.whole(0, MAX_COUNT, "the request's own text only"),
    "max_prompt_tokens": rules.whole(1, MAX_COUNT),
    "max_tokens": rules.whole(1, MAX_COUNT),
    "max_samples": rules.whole(1, MAX_COUNT),
    "max_concurrent": rules.whole(1, MAX_COUNT),
    "tokens_per_minute": rules.whole(0, 1 << 40, "no limit"),
    "max_running": rules.whole(1, MAX_COUNT),
    "share": rules.whole(1, 100),
    "priority": rules.whole(0, 100),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Tenant:
    """One tenant's keys, drafting policy and limits; docs/policy.md. Raises ValueError naming field and value."""

    name: str
    key_sha256: tuple[str, ...] = ()  # hex SHA-256 of each API key
    anonymous: bool = False  # serves callers without a key; then there are no keys
    proposers: tuple[str, ...] = (NGRAM,)  # who may draft, in order of preference; "none" or "auto" stand alone
    control: str = FIXED  # or "goodput": the controller picks among `proposers`; with "auto" it always does
    adapter: str = ""  # of the draft model, for this tenant's text; empty = the draft model as it is
    mode: str = "ratio"  # or "coupled": how drafts are verified (docs/exactness.md)
    num_draft_tokens: int = 4  # K: most draft tokens in one verify pass
    min_draft_tokens: int = 0  # fewest that the controller may choose while it drafts
    fan_out: int = 4  # outcomes that a drafter drafts for ahead of each commit; the most that the controller may choose
    max_wait_ms: float = 50.0  # longest wait of a lone sequence for a draft; the verifier waits less if it pays less
    off_above_temperature: float = MAX_TEMPERATURE  # requests above it are not drafted for
    off_above_running: int = MAX_COUNT  # sequences that run on the verifier; with more nothing is drafted
    off_below_acceptance: float = 0.0  # accepted / drafted; a proposer below it does not draft
    recent_output_tokens: int = 0  # of the tenant's own that n-gram drafts may come from; 0 = the request's text only
    max_prompt_tokens: int = MAX_COUNT  # largest prompt
    max_tokens: int = 4096  # largest output
    max_samples: int = 16  # of one request; each counts as a request in the limits below
    max_concurrent: int = 256  # requests at one time, running or waiting for a place
    max_running: int = MAX_COUNT  # requests that run at one time; more wait
    share: int = 1  # of the places, against other tenants of the same priority
    tokens_per_minute: int = 0  # prompt and output, in the long run; 0 = no limit
    priority: int = 0  # a request that waits for a place goes before those of a lower one

    def __post_init__(self) -> None:
        for field, rule in RULES.items():
            rules.require(field, getattr(self, field), rule)
        if self.anonymous == bool(self.key_sha256):
            raise ValueError(
                f"anonymous is {self.anonymous} with {len(self.key_sha256)} entries in key_sha256; "
                "give keys, or `anonymous: true` to serve callers without one"
            )
        if self.min_draft_tokens > self.num_draft_tokens:
            raise ValueError(
                f"min_draft_tokens is {self.min_draft_tokens}; it must be <= num_draft_tokens, {self.num_draft_tokens}"
            )

    @property
    def is_controlled(self) -> bool:
        """Whether who drafts, and how much, is decided by goodput."""
        return self.control == GOODPUT or self.proposers == (AUTO,)

    @property
    def active_proposers(self) -> tuple[str, ...]:
        """Who may really draft, in order: none of them if K is 0."""
        if self.num_draft_tokens == 0 or self.proposers == (NONE,):
            return ()
        return PROPOSERS if self.proposers == (AUTO,) else self.proposers

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

    def named(self, name: str) -> Tenant | None:
        return next((tenant for tenant in self._tenants if tenant.name == name), None)

    @property
    def has_keys(self) -> bool:
        """Whether any key is known at all."""
        return any(tenant.key_sha256 for tenant in self._tenants)

    def authenticate(self, authorization: str) -> Tenant:
        """The tenant of `authorization`, the value of that metadata entry; empty if the caller sent none."""
        if not authorization:
            return self._anonymous()
        scheme, _, key = authorization.partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise Unauthenticated("metadata `authorization` must be `Bearer <key>`")
        # HTTP headers may hold any bytes, which come as lone surrogates where they are no UTF-8.
        digest = hashlib.sha256(key.strip().encode(errors="surrogateescape")).hexdigest()
        # Every key is compared, each in constant time: the answer's time tells nothing about keys.
        matches = [t for t in self._tenants for known in t.key_sha256 if hmac.compare_digest(digest, known)]
        if not matches:
            raise Unauthenticated(
                "the API key belongs to no tenant; check what is sent as `authorization: Bearer <key>`"
            )
        return matches[0]

    def _anonymous(self) -> Tenant:
        for tenant in self._tenants:
            if tenant.anonymous:
                return tenant
        raise Unauthenticated("an API key is needed; send metadata `authorization: Bearer <key>`")


def default_tenants(*, remote: bool, tritonserver: bool = False) -> Tenants:
    """What serves when no file is given: everybody, drafted by n-grams, a draft model or nobody, as it pays."""
    proposers = (TRITONSERVER,) * tritonserver + (NGRAM,) + (DRAFT_MODEL,) * remote
    return Tenants([Tenant(name="default", anonymous=True, proposers=proposers, control=DEFAULT_CONTROL)])


def load_tenants(path: Path) -> Tenants:
    """Raises ValueError with file, field and value."""
    try:
        document = yaml.load(path.read_text(), _LOADER)
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
        raise ValueError(f"{where} is {quoted(entry)}; it must hold fields, `name` among them")
    where = f"{where} ({entry['name'] if isinstance(entry['name'], str) else quoted(entry['name'])})"
    if unknown := [key for key in entry if key not in known]:
        raise ValueError(f"{where}: unknown field {quoted(unknown[0])}; known are {', '.join(known)}")
    try:
        return Tenant(**{key: _as_tuple(key, value) for key, value in entry.items()})
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _as_tuple(field: str, value: Any) -> Any:
    if field == "proposers" and value == AUTO:
        return (AUTO,)
    if field not in ("key_sha256", "proposers"):
        return value
    if not isinstance(value, list):
        raise ValueError(f"{field} is {quoted(value)}; it must be a list" + f", or `{AUTO}`" * (field == "proposers"))
    return tuple(value)


def _require_distinct(field: str, values: list[str]) -> None:
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"{field} {value!r} is given to two tenants; it must be one tenant's only")
