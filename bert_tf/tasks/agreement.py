"""What several workers must have in common, and what is only done by one."""

import dataclasses
import zlib
from typing import Any

from bert_tf import training
from bert_tf.errors import UserError


def require_one_process(devices: training.Devices) -> None:
    """Refuses several workers, for what does not divide its input among them.

    Raises:
        UserError: there are several.
    """
    if devices.workers > 1:
        raise UserError(
            "This works in one process: divide the input, and start it for each part without "
            "TF_CONFIG"
        )


def require_same(devices: training.Devices, value: int, what: str, folder: str) -> None:
    """Waits for all workers, and refuses those whose figure is not the chief's.

    Args:
        devices: of the run.
        value: the figure.
        what: its name.
        folder: the flag of the folder that it comes from.

    Raises:
        UserError: it is another one here.
    """
    chief = devices.from_chief(value)
    if value != chief:
        raise UserError(
            f"The {what} is {value} for worker {devices.worker}, but {chief} for worker 0: "
            f"{folder} must show all workers the same files"
        )


def require_same_options(devices: training.Devices, options: Any) -> None:
    """Refuses workers that were started with other flags than the chief; paths may differ.

    Raises:
        UserError: they differ.
    """
    flags = {
        field.name: getattr(options, field.name)
        for field in dataclasses.fields(options)
        if not field.name.endswith(("_dir", "_file", "_checkpoint"))
    }
    digest = zlib.crc32(repr(flags).encode())
    if digest != devices.from_chief(digest):
        raise UserError(
            f"Worker {devices.worker} was started with other flags than worker 0: all workers "
            "take the same command, only TF_CONFIG differs"
        )
