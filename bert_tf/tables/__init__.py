"""Files of rows and columns: TSV, CSV and JSON lines."""
