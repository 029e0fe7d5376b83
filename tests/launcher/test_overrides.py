"""What flags change in a topology, and in which services."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from launcher.overrides import Overrides
from launcher.topology import GatewayService, ModelService, Topology

HERE = Path(__file__).parent
BOTH = Topology(verifiers=(ModelService(threads=2),), drafters=(ModelService(model=HERE),))


def test_nothing_given_changes_nothing() -> None:
    assert Overrides().apply(BOTH) == BOTH


def test_values_of_the_verifier_leave_the_drafter_alone() -> None:
    changed = Overrides(kv_memory="1GiB", max_model_len=128, threads=3).apply(BOTH)
    (verifier,) = changed.verifiers
    assert (verifier.kv_memory, verifier.max_model_len, verifier.threads) == ("1GiB", 128, 3)
    assert changed.drafters == BOTH.drafters


def test_dtype_and_number_of_sequences_concern_both() -> None:
    changed = Overrides(dtype="float32", max_num_seqs=5).apply(BOTH)
    assert [(one.dtype, one.max_num_seqs) for one in (*changed.verifiers, *changed.drafters)] == [("float32", 5)] * 2


def test_address_and_tenants_are_the_gateways() -> None:
    assert Overrides(listen="h:1", tenants=HERE).apply(BOTH).gateway == GatewayService(listen="h:1", tenants=HERE)


def test_a_key_to_watch_with_is_the_gateways() -> None:
    changed = Overrides(http="h:2", watch_key_sha256="0" * 64).apply(BOTH)
    assert changed.gateway == GatewayService(http="h:2", watch_key_sha256="0" * 64)


def test_traces_of_all_services_go_to_one_collector() -> None:
    changed = Overrides(otlp_endpoint="http://h:4318").apply(BOTH)
    assert {one.otlp_endpoint for one in (*changed.verifiers, *changed.drafters, changed.gateway)} == {"http://h:4318"}


def test_placement_is_that_of_all() -> None:
    assert Overrides(placement="one_process").apply(BOTH) == replace(BOTH, placement="one_process")


def test_a_bad_value_is_named() -> None:
    with pytest.raises(ValueError, match=r"max_num_seqs is 0; it must be a whole number in 1\.\."):
        Overrides(max_num_seqs=0).apply(BOTH)
