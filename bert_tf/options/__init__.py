"""Script options: one frozen dataclass per script, with mix-ins for shared options.

Notebooks create the same objects as the command line:
`classification.run(ClassifierOptions(task_name="MRPC", ...))`. A task's options are defined in the
task's folder and can also be imported from here.
"""

# ruff: noqa: F401
from typing import Any

from bert_tf.options import registry
from bert_tf.options.shared import DeviceOptions, EncoderOptions, ModelOptions, TrainingOptions


def __getattr__(name: str) -> Any:
    if name in (found := _references()):
        return registry.load(found[name])
    if name.endswith("Options"):
        # `from bert_tf.options import ...` would replace the message of an AttributeError.
        raise ImportError(f"There is no {name}, only {', '.join(found)}", name=__name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_references()])


def _references() -> dict[str, Any]:
    found = [x.options for x in registry.SCRIPTS.values()]
    found.append("bert_tf.finetuning.options:FineTuningOptions")
    return {str(x).rpartition(":")[2]: x for x in found}
