"""The KServe v2 interface of the gateway, by tritonclient's own stubs. Thin: reads, makes one call, replies."""
