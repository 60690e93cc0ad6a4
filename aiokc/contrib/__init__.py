"""What connects a consumer to the tools that watch it: Prometheus, OpenTelemetry, health probes. All of it optional."""
