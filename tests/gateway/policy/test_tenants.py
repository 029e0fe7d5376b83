"""tenants.yaml, keys, and what is refused."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

import pytest

from gateway.policy.tenants import PROPOSERS, Tenant, Tenants, default_tenants, load_tenants
from slipstream.errors import Unauthenticated
from slipstream.request import VerificationMode

EXAMPLE = Path(__file__).parents[3] / "gateway" / "tenants.example.yaml"
HASH = hashlib.sha256(b"secret").hexdigest()


def write(folder: Path, text: str) -> Path:
    path = folder / "tenants.yaml"
    path.write_text(text)
    return path


def test_the_example_loads_and_its_key_works() -> None:
    tenants = load_tenants(EXAMPLE)
    acme = tenants.authenticate("Bearer example-key")
    assert (acme.name, acme.active_proposers) == ("acme", ("draft_model", "ngram"))
    assert acme.verification_mode is VerificationMode.RATIO
    assert tenants.authenticate("").name == "public"


@pytest.mark.parametrize("authorization", ["Bearer secret", "bearer secret", "Bearer  secret "])
def test_a_key_finds_its_tenant(authorization: str) -> None:
    tenants = Tenants([Tenant(name="other", key_sha256=("0" * 64,)), Tenant(name="mine", key_sha256=(HASH,))])
    assert tenants.authenticate(authorization).name == "mine"


@pytest.mark.parametrize(
    ("authorization", "message"),
    [
        ("", "an API key is needed"),
        ("Bearer wrong", "belongs to no tenant"),
        ("Bearer wrong \udce9\udcff", "belongs to no tenant"),  # bytes of an HTTP header that are no UTF-8
        ("Basic secret", "must be `Bearer <key>`"),
        ("Bearer", "must be `Bearer <key>`"),
    ],
)
def test_whoever_has_no_valid_key_is_refused_without_showing_it(authorization: str, message: str) -> None:
    with pytest.raises(Unauthenticated, match=message) as raised:
        Tenants([Tenant(name="mine", key_sha256=(HASH,))]).authenticate(authorization)
    assert "wrong" not in str(raised.value)


def test_whether_any_key_is_known() -> None:
    assert not Tenants([Tenant(name="a", anonymous=True)]).has_keys
    assert Tenants([Tenant(name="a", anonymous=True), Tenant(name="b", key_sha256=("0" * 64,))]).has_keys


def test_every_key_is_compared_in_constant_time_also_after_the_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    compare = hmac.compare_digest

    def compare_digest(given: str, known: str) -> bool:
        compared.append(known)
        return compare(given, known)

    monkeypatch.setattr(hmac, "compare_digest", compare_digest)
    others = ("1" * 64, "2" * 64)
    tenants = Tenants([Tenant(name="mine", key_sha256=(HASH, others[0])), Tenant(name="x", key_sha256=(others[1],))])
    assert tenants.authenticate("Bearer secret").name == "mine"
    assert compared == [HASH, *others]


def test_an_unknown_key_is_not_served_as_anonymous() -> None:
    with pytest.raises(Unauthenticated):
        default_tenants(remote=False).authenticate("Bearer unknown")


def test_drafting_is_off_without_proposers_or_draft_tokens() -> None:
    assert Tenant(name="a", anonymous=True, proposers=("none",)).active_proposers == ()
    assert Tenant(name="a", anonymous=True, num_draft_tokens=0).active_proposers == ()


def test_auto_allows_every_proposer_and_is_controlled(tmp_path: Path) -> None:
    (tenant,) = load_tenants(write(tmp_path, "tenants: [{name: a, anonymous: true, proposers: auto}]")).all
    assert tenant.is_controlled
    assert tenant.active_proposers == PROPOSERS


def test_listed_proposers_are_controlled_only_if_asked() -> None:
    assert not Tenant(name="a", anonymous=True).is_controlled
    assert Tenant(name="a", anonymous=True, control="goodput").is_controlled


def test_a_key_that_stands_where_its_hash_should_is_not_told_on(tmp_path: Path) -> None:
    with pytest.raises(ValueError) as raised:
        load_tenants(write(tmp_path, "tenants: [{name: a, key_sha256: [my-secret-key]}]"))
    assert "my-secret-key" not in str(raised.value)


def test_without_a_file_a_drafter_is_used_if_there_is_one_and_it_pays() -> None:
    assert all(tenant.is_controlled for tenant in default_tenants(remote=True).all)
    assert default_tenants(remote=True).authenticate("").proposers == ("ngram", "draft_model")
    assert default_tenants(remote=False).authenticate("").proposers == ("ngram",)
    assert default_tenants(remote=False, tritonserver=True).authenticate("").proposers == ("tritonserver", "ngram")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{name: a, anonymous: true, mode: fast}", r"tenants\[0\] \(a\): mode is 'fast'; it must be one of ratio"),
        ("{name: a, anonymous: true, num_draft_tokens: 65}", "num_draft_tokens is 65; .* 0..64"),
        ("{name: a, anonymous: true, num_draft_tokens: true}", "num_draft_tokens is True"),
        ("{name: a, anonymous: true, max_wait_ms: -1}", "max_wait_ms is -1"),
        ("{name: a, anonymous: true, max_concurrent: 0}", "max_concurrent is 0"),
        ("{name: a, anonymous: true, proposers: [auto, ngram]}", "`auto` or a list"),
        ("{name: a, anonymous: true, control: fast}", "control is 'fast'; it must be one of fixed, goodput"),
        ("{name: a, anonymous: true, min_draft_tokens: 5}", "min_draft_tokens is 5; it must be <= num_draft_tokens, 4"),
        ("{name: a, anonymous: true, off_above_temperature: .nan}", "off_above_temperature is nan"),
        ("{name: a, anonymous: true, off_below_acceptance: 2}", "off_below_acceptance is 2; .* in 0..1"),
        ("{name: a, anonymous: true, tokens_per_minute: many}", "tokens_per_minute is 'many'; .*no limit"),
        ("{name: a, anonymous: true, priority: -1}", "priority is -1"),
        ("{name: a, anonymous: true, proposers: ngram}", "proposers is 'ngram'; it must be a list"),
        ("{name: a, anonymous: true, proposers: [magic]}", r"proposers is \['magic'\]; .*draft_model"),
        ("{name: a, anonymous: true, proposers: []}", r"proposers is \[\]"),
        ("{name: a, anonymous: true, proposers: [none, ngram]}", "`none` only by itself"),
        ("{name: a, anonymous: true, proposers: [ngram, ngram]}", "without repetition"),
        ("{name: a, key_sha256: [secret]}", "key_sha256 is not as it should be; it must be a list, each 64 hex"),
        ("{name: a}", "anonymous is False with 0 entries in key_sha256; give keys"),
        ("{name: a, anonymous: true, key_sha256: [" + HASH + "]}", "anonymous is True with 1 entries"),
        ("{name: a, anonymous: 1}", "anonymous is 1; it must be true or false"),
        ("{name: '', anonymous: true}", "name is ''"),
        ("{name: a, anonymous: true, speed: 9}", "unknown field 'speed'; known are name, key_sha256"),
        ("{anonymous: true}", "`name` among them"),
        ("{name: a, anonymous: true}, {name: a, key_sha256: [" + HASH + "]}", "name 'a' is given to two tenants"),
        ("{name: a, anonymous: true}, {name: b, anonymous: true}", "anonymous 'true' is given to two"),
        ("{name: a, key_sha256: [" + HASH + "]}, {name: b, key_sha256: [" + HASH + "]}", "key_sha256 .* two tenants"),
    ],
)  # fmt: skip
def test_a_wrong_entry_is_named_with_file_field_and_value(tmp_path: Path, entry: str, message: str) -> None:
    with pytest.raises(ValueError, match=rf"tenants\.yaml: .*{message}"):
        load_tenants(write(tmp_path, f"tenants: [{entry}]"))


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "must hold `tenants:`"), ("tenants: []", "at least one"), ("[a", "is not YAML"), ("- a", "must hold")],
)
def test_a_file_that_holds_no_tenants_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_tenants(write(tmp_path, text))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"absent\.yaml: cannot be read"):
        load_tenants(tmp_path / "absent.yaml")


def test_a_page_of_aliases_that_means_a_thousand_million_entries_is_refused_at_once(tmp_path: Path) -> None:
    file = tmp_path / "tenants.yaml"
    lists = [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]" for i in range(1, 10)]
    file.write_text("\n".join(["l0: &l0 [x]", *lists, "tenants: *l9"]))
    with pytest.raises(ValueError, match=r"tenants\[0\] is \[\[\["):
        load_tenants(file)
