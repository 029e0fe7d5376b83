"""Compiled functions that go on uncompiled where the compiler fails. Knows no model."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch._dynamo.exc import TorchDynamoException

_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")


def compiled(function: Callable[_Args, _Result], *, dynamic: bool | None = None) -> Callable[_Args, _Result]:
    """`function`, faster on a GPU. `dynamic` False: every shape is compiled for itself."""
    fast, broken = torch.compile(function, dynamic=dynamic), False

    def call(*args: _Args.args, **kwargs: _Args.kwargs) -> _Result:
        nonlocal broken
        if not broken:
            try:
                return fast(*args, **kwargs)
            except TorchDynamoException as error:
                broken = True
                name = getattr(function, "__qualname__", str(function))
                warnings.warn(f"{name} is not compiled, which makes it slower: {error}", RuntimeWarning, stacklevel=2)
        return function(*args, **kwargs)

    return call
