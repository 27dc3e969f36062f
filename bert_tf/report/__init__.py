"""The report of an evaluation: `report.html` and `eval_predictions.tsv`. It knows no task."""
