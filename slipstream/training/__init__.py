"""Makes drafters: text by the target, distillation, storage. An optional part (extra `train`)."""
