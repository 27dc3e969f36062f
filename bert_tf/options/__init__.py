"""Options of the scripts: one frozen dataclass for each, with what scripts share as mix-ins.

A notebook creates the same objects as the command line:
`classification.run(ClassifierOptions(task_name="MRPC", ...))`. The options of a task are defined
in the task's folder; they can be imported from here, too.
"""

# ruff: noqa: F401
from typing import Any

from bert_tf import registry
from bert_tf.options.fine_tuning import FineTuningOptions
from bert_tf.options.shared import DeviceOptions, EncoderOptions, ModelOptions, TrainingOptions


def __getattr__(name: str) -> Any:
    for script in registry.SCRIPTS.values():
        if script.options.endswith(f":{name}"):
            return script.options_class
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
