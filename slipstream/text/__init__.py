"""Tokenizer, chat template, incremental detokenisation. Knows nothing of tensors."""
