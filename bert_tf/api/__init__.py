"""What Python programs use: `Predictor`, `encode`, and the estimators."""
