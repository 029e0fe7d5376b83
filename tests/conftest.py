"""Settings of every test.

Triton decides at its first import, wherever that happens, whether kernels are compiled or interpreted; so this comes
before any test module. Tests that compile do so in a process of their own (tests/kernels/hopper.py).
"""

from __future__ import annotations

import os
from pathlib import Path

if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")
