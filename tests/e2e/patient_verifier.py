"""A verifier that gives drafts all the time that the gateway allows, whatever its passes cost."""

from __future__ import annotations

import math

from verifier_svc.__main__ import app
from verifier_svc.patience import Patience

if __name__ == "__main__":
    Patience.seconds = math.inf  # type: ignore[assignment, method-assign]
    app()
