"""Connects clients to the tools that watch them: Prometheus, OpenTelemetry, health probes. All of it optional."""
