"""What the scripts run."""
