"""Fixtures of the verifier's tests."""

import pytest

from tests.verifier_svc.harness import tiny_tokenizer


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory):
    return tiny_tokenizer(tmp_path_factory.mktemp("tokenizer"))
