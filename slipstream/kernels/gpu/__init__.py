"""Triton kernels, each with the signature of its torch reference one folder up. Imported only where a GPU is used."""
