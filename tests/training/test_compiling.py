"""Where the compiler fails, a function goes on uncompiled, and says so once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from slipstream.training.compiling import compiled


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> list[Callable[..., object]]:
    """The last of these stands for the compiler."""
    backends: list[Callable[..., object]] = []
    compile_with = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, dynamic: compile_with(function, backend=backends[-1]))
    return backends


def test_a_function_that_cannot_be_compiled_gives_its_result_and_one_warning(
    backend: list[Callable[..., object]],
) -> None:
    def fails(*_: object) -> object:
        raise ValueError("no such instruction")

    backend.append(fails)
    double = compiled(lambda x: x * 2)
    with pytest.warns(RuntimeWarning, match="no such instruction") as warned:
        results = [double(torch.ones(2)), double(torch.ones(3))]
    assert [result.tolist() for result in results] == [[2, 2], [2, 2, 2]]
    assert len(warned) == 1


def test_one_that_can_be_is_compiled(backend: list[Callable[..., object]]) -> None:
    graphs: list[object] = []

    def notes(graph: Callable[..., object], _: object) -> object:
        graphs.append(graph)
        return graph

    backend.append(notes)
    assert compiled(lambda x: x * 2)(torch.ones(2)).tolist() == [2, 2]
    assert len(graphs) == 1


def test_the_functions_own_errors_are_its_callers(backend: list[Callable[..., object]]) -> None:
    def refuses(x: torch.Tensor) -> torch.Tensor:
        if len(x) > 1:
            raise KeyError("too long")
        return x

    backend.append(lambda graph, _: graph)
    with pytest.raises(KeyError, match="too long"):
        compiled(refuses)(torch.ones(2))
