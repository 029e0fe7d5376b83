"""Proposers that need numpy only."""
