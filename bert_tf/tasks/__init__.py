"""Tasks, one folder each: options, data, model, metrics. Tasks do not import each other."""
