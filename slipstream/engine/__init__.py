"""Runs a model over batches of sequences. Knows nothing of the network."""
