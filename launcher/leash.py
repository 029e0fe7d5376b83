"""Becomes another program that the kernel kills when this one's parent dies: `leash.py PARENT_PID PROGRAM ...`.

A wrapper and not a preexec_fn: that one runs Python between fork and exec, beside the threads of gRPC. Linux only;
elsewhere the program runs without it. Note that the kernel means the *thread* that started the process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the line above
            sys.exit(1)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
