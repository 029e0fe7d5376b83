"""What the services' command lines share: one line for a mistake."""

from __future__ import annotations

import pytest
import typer

from slipstream.command_line import mistakes_in_one_line


def test_a_bad_value_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as exit_, mistakes_in_one_line():
        raise ValueError("dtype is 'int3'")
    assert exit_.value.exit_code == 2
    assert capsys.readouterr().err == "error: dtype is 'int3'\n"


def test_a_fault_of_ours_keeps_its_traceback() -> None:
    with pytest.raises(AssertionError), mistakes_in_one_line():
        raise AssertionError
