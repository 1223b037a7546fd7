"""Runs that new ones are held against: small Parquet in version control, and the ledger of who put them there."""
