"""Runs a script in a separate process for the distribution tests.

usage: python -m tests.training.driver SCRIPT LOGICAL_CPUS FIGURES_FILE --flag=value ...

SCRIPT is the name of a function of `bert_tf.scripts`. The CPU is split into logical devices. The
metrics of every step are appended to the file as JSON lines. The heads' dropout is off, so that N
devices equal one, and the classifier's and the span head start from large weights, so that
gradients are clipped.
"""

import json
import sys


def main(script: str, logical_cpus: int, figures_file: str) -> None:
    import tensorflow as tf

    from bert_tf import scripts, training
    from bert_tf.modeling import heads

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
    getattr(scripts, script)()


if __name__ == "__main__":
    script, logical_cpus, figures_file = sys.argv[1:4]
    sys.argv = ["driver", *sys.argv[4:]]
    main(script, int(logical_cpus), figures_file)
