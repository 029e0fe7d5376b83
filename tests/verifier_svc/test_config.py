"""A verifier's settings, and what is said of bad ones."""

import pytest

from slipstream.config import EngineConfig
from verifier_svc.config import VerifierConfig


@pytest.mark.parametrize("field, value", [("max_waiting", -1), ("max_queued_messages", 0)])
def test_a_bound_below_its_least_value_is_named(tmp_path, field, value):
    with pytest.raises(ValueError, match=f"{field} is {value}"):
        VerifierConfig(engine=EngineConfig(model=tmp_path), **{field: value})


def test_a_model_is_called_by_its_name_or_that_of_its_folder_or_file(tmp_path):
    folder, file = tmp_path / "SmolLM2-135M", tmp_path / "model.q4.gguf"
    folder.mkdir()
    file.touch()
    assert VerifierConfig(engine=EngineConfig(model=folder)).model_name == "SmolLM2-135M"
    assert VerifierConfig(engine=EngineConfig(model=file)).model_name == "model.q4"
    assert VerifierConfig(engine=EngineConfig(model=file), name="chat").model_name == "chat"
