"""Runs a script on logical devices and records its training metrics.

usage: python -m tests.training.driver SCRIPT LOGICAL_DEVICES METRICS_FILE --flag=value ...

SCRIPT is the name of a function in `bert_tf.scripts`. The metrics of each step are appended to
METRICS_FILE as JSON lines. The heads' dropout is disabled, so that results do not depend on the
number of devices. The weights of linear heads are large, so that gradients are clipped.
"""

import json
import sys


def main(script: str, logical_devices: int, metrics_file: str) -> None:
    from bert_tf import scripts, training
    from bert_tf.modeling import heads
    from tests.training.logical_devices import split_device

    if logical_devices > 1:
        split_device(logical_devices)
    heads.CLASSIFIER_DROPOUT = 0.0
    heads.LinearHead.__init__.__defaults__ = (1.0,)
    make_train_step = training.make_train_step

    def make_recording_step(*args, **kwargs):
        step = make_train_step(*args, **kwargs)

        def run_and_record(*args):
            metrics = step(*args)
            with open(metrics_file, "a") as file:
                values = {name: float(value) for name, value in metrics.items()}
                file.write(json.dumps(values) + "\n")
            return metrics

        return run_and_record

    training.make_train_step = make_recording_step
    getattr(scripts, script)()


if __name__ == "__main__":
    script, logical_devices, metrics_file = sys.argv[1:4]
    sys.argv = ["driver", *sys.argv[4:]]
    main(script, int(logical_devices), metrics_file)
