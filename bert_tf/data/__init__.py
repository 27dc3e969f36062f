"""From files to features and records."""
