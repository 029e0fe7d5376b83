"""The OpenAI-compatible HTTP interface of the gateway. Thin: reads, makes one call, replies."""
