"""From recorded events to Parquet tables and figures with intervals."""
