"""The tasks, one folder for each: options, data, model, metrics. No task imports another one."""
