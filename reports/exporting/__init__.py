"""Collected runs in the formats of other tools: Perfetto traces, OpenTelemetry spans, MLPerf logs."""
