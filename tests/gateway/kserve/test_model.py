"""What is said of a model agrees with what is read of a request."""

from __future__ import annotations

import pytest

from gateway.kserve import model
from slipstream.errors import UnknownModel


def test_metadata_and_configuration_name_the_same_tensors() -> None:
    metadata, config = model.metadata("tiny"), model.configuration("tiny").config
    names = ["text_input", "stream", "sampling_parameters", "exclude_input_in_output"]
    assert [one.name for one in metadata.inputs] == [one.name for one in config.input] == names
    assert [one.name for one in metadata.outputs] == [one.name for one in config.output] == ["text_output"]
    assert [one.optional for one in config.input] == [False, True, True, True]
    assert (metadata.name, config.name, list(metadata.versions)) == ("tiny", "tiny", ["1"])
    assert config.model_transaction_policy.decoupled


def test_the_index_lists_what_is_ready() -> None:
    assert [(one.name, one.state) for one in model.repository_index(["a", "b"]).models] == [
        ("a", "READY"),
        ("b", "READY"),
    ]


def test_a_version_is_the_only_one_or_left_out() -> None:
    model.check_version("")
    model.check_version("1")
    with pytest.raises(UnknownModel):
        model.check_version("01")
