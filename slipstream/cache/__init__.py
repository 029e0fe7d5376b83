"""Paged KV cache: bookkeeping knows no tensors, tensors know no requests."""
