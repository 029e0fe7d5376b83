"""Traces of requests across the services, for whoever collects them by OpenTelemetry."""
