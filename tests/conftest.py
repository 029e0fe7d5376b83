"""Settings of every test.

Triton decides at its first import, wherever that happens, whether kernels are compiled or interpreted; so this comes
before any test module. Tests that compile do so in a process of their own (tests/kernels/hopper.py).
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# A shell's background job ignores Ctrl-C, and so would all that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
