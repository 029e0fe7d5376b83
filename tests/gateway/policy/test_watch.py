"""When tenants.yaml is read again, and what happens to one that cannot be used."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from gateway.policy.tenants import Tenants, load_tenants
from gateway.policy.watch import ACCEPTED, REJECTED, PolicyWatch
from slipstream.logs import fields_of

GOOD = "tenants: [{name: a, anonymous: true, num_draft_tokens: 2}]"
BAD = "tenants: [{name: a, anonymous: true, num_draft_tokens: many}]"


class Watched:
    def __init__(self, folder: Path) -> None:
        self.file = folder / "tenants.yaml"
        self.file.write_text("tenants: [{name: a, anonymous: true}]")
        self.taken: list[Tenants] = []
        self.watch = PolicyWatch(self.file, load_tenants(self.file), self.taken.append)

    def look_twice(self) -> None:
        self.watch.look()
        self.watch.look()


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_a_file_that_stays_is_not_read_again(watched: Watched) -> None:
    watched.look_twice()
    assert watched.taken == []


def test_a_changed_file_is_taken_up_once_it_is_written_to_its_end(watched: Watched) -> None:
    watched.file.write_text(GOOD)
    watched.watch.look()
    assert watched.taken == []
    watched.look_twice()
    (tenants,) = watched.taken
    assert tenants.all[0].num_draft_tokens == 2
    assert watched.watch.reloads.value(ACCEPTED) == 1


def test_a_file_that_is_put_in_its_place_is_taken_up(watched: Watched, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(GOOD)
    other.replace(watched.file)
    watched.look_twice()
    assert len(watched.taken) == 1


def test_a_bad_file_leaves_the_old_policy_in_force_and_says_why(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gateway.audit")
    watched.file.write_text(BAD)
    watched.look_twice()
    watched.look_twice()
    assert watched.taken == []
    assert watched.watch.reloads.value(REJECTED) == 1
    (record,) = caplog.records
    assert record.getMessage() == "policies kept"
    assert "num_draft_tokens is 'many'" in str(fields_of(record)["reason"])


def test_a_file_that_went_away_leaves_the_old_policy_in_force(watched: Watched) -> None:
    watched.file.unlink()
    watched.look_twice()
    assert watched.taken == []
    assert watched.watch.reloads.value(REJECTED) == 1


def test_changes_are_told_against_what_is_in_force(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gateway.audit")
    for text in (GOOD, BAD, GOOD.replace("2", "3")):
        watched.file.write_text(text)
        watched.watch.reload()
    assert fields_of(caplog.records[-1])["num_draft_tokens"] == "2 -> 3"
