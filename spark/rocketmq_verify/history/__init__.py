"""Results of earlier runs, kept in Parquet files."""
