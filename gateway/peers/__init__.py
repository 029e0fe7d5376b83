"""Verifiers, drafters and other servers: found, picked, spoken to, lost and found again."""
