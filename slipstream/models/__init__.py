"""Llama-family models and their checkpoints."""
