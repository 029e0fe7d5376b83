"""Status of services that answer, that do not, and that are of a kind unknown."""

from __future__ import annotations

import json
from io import StringIO

from rich.console import Console

from launcher.passes import PassTotals
from launcher.peer import SERVING, UNREACHABLE
from launcher.run_file import Listed
from launcher.status import ServiceStatus, as_json_text, as_table, ask_all
from tests.launcher.scripted_gateway import serving

VERIFIER = ServiceStatus(
    name="verifier",
    address="127.0.0.1:50051",
    kind="verifier",
    health=SERVING,
    version="1.2",
    model="smollm2-135m-instruct",
    num_sequences=3,
    kv_blocks_used=10,
    kv_blocks_total=1422,
    passes=PassTotals(num_passes=4, num_committed=10, num_drafts=2, num_accepted=3),
)


def test_services_are_told_apart_and_a_missing_one_is_unreachable() -> None:
    with serving() as (_, address):
        found, missing = ask_all([Listed(name="gateway", address=address), Listed(name="x", address="127.0.0.1:1")])
    assert (found.kind, found.health, found.is_serving) == ("gateway", SERVING, True)
    assert (missing.name, missing.health, missing.is_serving) == ("x", UNREACHABLE, False)


def test_the_table_fits_a_terminal_and_holds_the_numbers() -> None:
    console = Console(width=80, record=True, file=StringIO())
    console.print(as_table([VERIFIER, ServiceStatus(name="gateway", address="127.0.0.1:50050")]))
    text = console.export_text()
    for word in (
        "127.0.0.1:50051",
        "SERVING",
        "10/1422",
        "2.50",
        "UNREACHABLE",
        "verifier: smollm2-135m-instruct, version 1.2",
    ):
        assert word in text
    assert "…" not in text


def test_json_is_a_list_of_services_with_numbers_as_numbers() -> None:
    (status,) = json.loads(as_json_text([VERIFIER]))
    assert (status["num_sequences"], status["kv_blocks_used"]) == (3, 10)
    assert status["passes"] == {"num_passes": 4, "num_committed": 10, "num_drafts": 2, "num_accepted": 3}
