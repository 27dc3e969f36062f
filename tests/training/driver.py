"""Runs run_classifier.py's work in a process of its own, as the tests of distribution need it.

usage: python -m tests.training.driver LOGICAL_CPUS FIGURES_FILE --flag=value ...

The CPU is split into logical devices. What every step gives is appended to the file, a JSON line
each. The classifier's own dropout is off, so that N devices equal one, and its head starts from
large weights, so that gradients are clipped.
"""

import json
import sys


def main(logical_cpus: int, figures_file: str, arguments: list[str]) -> None:
    import tensorflow as tf

    from bert_tf import cli, training
    from bert_tf.modeling import heads
    from bert_tf.options import ClassifierOptions
    from bert_tf.tasks import classification

    if logical_cpus > 1:
        (cpu,) = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * logical_cpus
        )
    heads.CLASSIFIER_DROPOUT = 0.0
    heads.LinearHead.__init__.__defaults__ = (1.0,)
    make_train_step = training.make_train_step

    def recorded(*args, **kwargs):
        step = make_train_step(*args, **kwargs)

        def record(*args):
            figures = step(*args)
            with open(figures_file, "a") as file:
                values = {name: float(value) for name, value in figures.items()}
                file.write(json.dumps(values) + "\n")
            return figures

        return record

    training.make_train_step = recorded
    cli.main(ClassifierOptions, classification.run, ["driver", *arguments], "")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
