"""The gateway: clients in front, verifiers and drafters behind. Runs without torch."""
