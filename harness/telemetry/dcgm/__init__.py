"""DCGM's profiling fields: how full a GPU was, from a dcgm-exporter or from `dcgmi dmon`."""
