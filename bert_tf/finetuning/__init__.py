"""Fine-tuning: the contract of a task, and the one run that serves all tasks."""
