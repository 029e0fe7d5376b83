"""Every kernel builds for Hopper, into the instructions that it was written for."""

from __future__ import annotations

import pytest

from tests.kernels.gpu.hopper_builds import BUILDS, build_all


@pytest.mark.timeout(120)
def test_every_kernel_builds_for_hopper() -> None:
    ptx = build_all()
    assert ptx.keys() == BUILDS.keys()
    assert all(".target sm_90" in text for text in ptx.values())
    # Noise near its largest values needs accurate logarithms, see slipstream/kernels/noise.py.
    assert all("lg2.approx" not in ptx[name] for name in ("statistics", "limits", "second look", "choose drafts"))
    assert not any(fast in ptx["rotary angles"] for fast in ("cos.approx", "sin.approx")), "wrong far out"
    assert "wgmma" in ptx["prompt attention"]
    assert "cp.async" in ptx["verify attention"]
