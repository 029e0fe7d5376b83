"""The parts of a transformer, built on slipstream.kernels."""
