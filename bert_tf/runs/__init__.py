"""What fine-tuning and pre-training have in common: a training run, its weights and its results."""
