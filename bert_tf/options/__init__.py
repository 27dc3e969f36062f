"""Script options: one frozen dataclass per script, with mix-ins for shared options.

Notebooks create the same objects as the command line:
`classification.run(ClassifierOptions(task_name="MRPC", ...))`. A task's options are defined in the
task's folder and can also be imported from here.
"""

# ruff: noqa: F401
from typing import Any

from bert_tf import registry
from bert_tf.options.fine_tuning import FineTuningOptions
from bert_tf.options.shared import DeviceOptions, EncoderOptions, ModelOptions, TrainingOptions


def __getattr__(name: str) -> Any:
    for script in registry.SCRIPTS.values():
        if str(script.options).endswith(f":{name}"):
            return script.options_class
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
