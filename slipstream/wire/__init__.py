"""gRPC: generated code, conversion between messages and domain objects, server scaffolding."""
