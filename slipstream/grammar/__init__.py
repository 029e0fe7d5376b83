"""Structured output: what a caller's grammar allows, token by token. Only this package knows xgrammar."""
