"""The parent process of a benchmark run: specs, environments, supervision, telemetry and the `bench` command."""
