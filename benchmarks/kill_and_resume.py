"""Checks that a training run ends with the same weights, whether or not it is killed repeatedly.

usage: python benchmarks/kill_and_resume.py --model_dir=DIR --data_dir=DIR --work_dir=DIR

`run_classifier.py` trains on MRPC once without interruption. The same command, with a different
output folder, is repeatedly killed (SIGKILL) and restarted: during startup, between checkpoints,
and while it writes one. All tensors of both runs' last checkpoints must be bitwise equal.

With --full_disk, the second run is not killed but runs out of disk space: it must stop with one
ERROR line, and resume once space is available. This needs a small file system with space for 7
checkpoints, for instance in memory (5 are kept, each three times the size of the weights):

    mkdir /tmp/small && mount -t tmpfs -o size=2g tmpfs /tmp/small
    python benchmarks/kill_and_resume.py ... --full_disk --small_dir=/tmp/small

Other flags, such as --precision=bfloat16, are passed to run_classifier.py. An uninterrupted run of
the same command in --work_dir is reused: remove its folder after changing the code. The exit code
is 1 if a check fails.
"""

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bert_tf import checkpoints
from bert_tf.base.errors import UserError

SCRIPT = Path(__file__).resolve().parents[1] / "run_classifier.py"
# Fractions of the kills that happen during startup, and while a checkpoint is being written; the
# others happen at any time between two checkpoints.
STARTUP_FRACTION, WRITE_FRACTION = 0.15, 0.35
# Training flags that can also be passed to this script, with their defaults.
FLAGS = {
    "max_seq_length": 64,
    "train_batch_size": 32,
    "num_train_epochs": 3.0,
    "save_checkpoints_steps": 20,
}
# Columns of the table that is printed, with a row for each start. The step in "killed at" is an
# estimate; other steps are those of checkpoints.
COLUMNS = (
    "phase",
    "seconds",
    "last readable before",
    "resumed from",
    "killed at",
    "last readable after",
    "unfinished files",
)


class TrainingRun:
    """A training run with the output folder `folder`, which can be started several times."""

    def __init__(self, flags: list[str], folder: Path, logs: Path) -> None:
        self.command = [sys.executable, str(SCRIPT), *flags]
        self.folder, self.logs, self.num_starts = folder, logs, 0

    def start(self) -> None:
        """Starts the process."""
        self.num_starts += 1
        self.log = self.logs / f"{self.folder.name}-{self.num_starts:02d}.log"
        self.previous_unfinished = self.unfinished_files()
        self.start_time = time.time()
        command = [*self.command, f"--output_dir={self.folder}"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def wait(self, condition: Callable[[], bool] = lambda: False, pause: float = 0.005) -> None:
        """Waits until a condition holds or the process ends."""
        while self.process.poll() is None and not condition():
            time.sleep(pause)

    def run(self) -> int:
        """Starts the process, waits until it ends, and returns its exit code."""
        self.start()
        return self.process.wait()

    def last_step(self) -> int:
        """Returns the step of the last listed checkpoint, or -1 if there is none."""
        names = checkpoints.names_in(str(self.folder))
        return int(names[-1].split("-")[1]) if names else -1

    def last_readable_step(self) -> int:
        """Returns the step of the last checkpoint without damage, or -1 if there is none."""
        try:
            prefix = checkpoints.newest_readable(str(self.folder))
        except UserError:
            prefix = None
        return checkpoints.step_of(prefix) if prefix else -1

    def resumed_step(self) -> int | None:
        """Returns the step from which the process resumed; None if its log shows none so far."""
        match = re.search(r"^Resuming from \S*model\.ckpt-(\d+) ", self.log.read_text(), re.M)
        return int(match[1]) if match else None

    def unfinished_files(self) -> set[tuple[str, float]]:
        """Returns (name, modification time) of all files of unfinished checkpoints.

        A checkpoint is finished once the file `checkpoint` lists it.
        """
        listed = checkpoints.names_in(str(self.folder))
        files = [*self.folder.glob("model.ckpt-*"), *self.folder.glob("checkpoint.tmp")]
        prefixes = {file: re.sub(r"\.(index|data-\d+-of-\d+)$", "", file.name) for file in files}
        return {(f.name, f.stat().st_mtime) for f in files if prefixes[f] not in listed}

    def is_writing(self, min_bytes: float = 0) -> bool:
        """Returns whether a checkpoint is being written, with at least `min_bytes` so far."""
        old = {name for name, _ in self.previous_unfinished}
        try:
            files = [file for file in self.folder.glob("*tempstate*") if file.name not in old]
            return any(file.stat().st_size >= min_bytes for file in files)
        except FileNotFoundError:  # the file was just renamed, as its content is complete
            return True


def run_uninterrupted(training: TrainingRun, save_steps: int) -> dict[str, float]:
    """Trains to the end, or reuses an earlier run of the same command.

    Returns:
        `startup_seconds` (until the first step), `seconds_per_step`, `last_step`, and
        `checkpoint_bytes`, the size of a checkpoint.
    """
    stats_file = training.folder.with_suffix(".json")
    if stats_file.exists() and training.last_step() > 0:
        command, stats = json.loads(stats_file.read_text())
        if command == training.command:
            return stats
    shutil.rmtree(training.folder, ignore_errors=True)
    training.start()
    training.wait(lambda: training.last_step() >= save_steps)
    first_save = time.time()
    code, last = training.process.wait(), training.last_step()
    if code or last < 2 * save_steps:
        sys.exit(f"The uninterrupted run failed or wrote too few checkpoints: {training.log}")
    seconds_per_step = (time.time() - first_save) / (last - save_steps)
    startup = first_save - training.start_time - save_steps * seconds_per_step
    num_bytes = os.path.getsize(f"{training.folder}/model.ckpt-{last}.data-00000-of-00001")
    stats = {
        "startup_seconds": startup,
        "seconds_per_step": seconds_per_step,
        "last_step": last,
        "checkpoint_bytes": num_bytes,
    }
    stats_file.write_text(json.dumps([training.command, stats]))
    return stats


def wait_until_kill(
    training: TrainingRun, phase: str, target: int, save_steps: int, stats: dict[str, float]
) -> None:
    """Returns at a random moment in `phase`, or when the process ends.

    In the phases "steps" and "write", this is a moment after the checkpoint of the step `target`.
    """
    if phase == "startup":
        kill_time = training.start_time + random.uniform(0, stats["startup_seconds"])
        training.wait(lambda: time.time() >= kill_time)
        return
    # If the checkpoint already exists, wait until the process has resumed from it.
    target_pending = training.last_step() < target
    training.wait(
        lambda: (
            training.last_step() >= target
            and (target_pending or training.resumed_step() is not None)
        )
    )
    begin = time.time()
    if not target_pending:
        begin = max(begin, training.start_time + stats["startup_seconds"])
    kill_time = begin + random.uniform(0, save_steps * stats["seconds_per_step"])
    # The next checkpoint also ends the waits below: times are estimates, and polling may miss the
    # writing of a small file.
    last = training.last_step()
    if phase == "steps":
        training.wait(lambda: time.time() >= kill_time or training.last_step() > last)
        return
    # Wait until a random fraction of the bytes is written. Above 0.95, which is for a third of the
    # kills, wait until the file is renamed: old checkpoints are removed after that.
    fraction = random.uniform(0, 1.5)
    min_bytes = min(fraction, 0.95) * stats["checkpoint_bytes"]
    training.wait(lambda: training.is_writing(min_bytes) or training.last_step() > last, 0.0005)
    training.wait(lambda: fraction < 0.95 or not training.is_writing(), 0.0005)


def kill_and_resume(
    training: TrainingRun, kills: int, save_steps: int, stats: dict[str, float]
) -> tuple[dict[str, Any], dict[str, bool]]:
    """Kills a run `kills` times, then lets it finish; returns statistics and checks."""
    startups, writes = round(kills * STARTUP_FRACTION), round(kills * WRITE_FRACTION)
    phases = ["startup"] * startups + ["write"] * writes + ["steps"] * (kills - startups - writes)
    random.shuffle(phases)
    rows, num_damaged, exit_code = [], 0, -signal.SIGKILL
    print("|", " | ".join(COLUMNS), "|\n", "|---" * len(COLUMNS), "|", sep="")
    while exit_code == -signal.SIGKILL and len(rows) <= kills:
        step_before = training.last_readable_step()
        # Let the process write some checkpoints before it may be killed: at least one if there is
        # none above step 0, and so few that one remains for each of the remaining starts.
        num_starts = kills + 1 - len(rows)
        num_spare = (stats["last_step"] - max(step_before, 0)) // save_steps - 1 - num_starts
        num_written = max(int(max(num_spare, 0) / num_starts + random.random()), step_before < 1)
        target = max(step_before, 0) + num_written * save_steps
        phase = [*phases, "end"][len(rows)]
        training.start()
        if phase != "end":
            wait_until_kill(training, phase, target, save_steps, stats)
            training.process.kill()
        exit_code = training.process.wait()
        seconds, step = time.time() - training.start_time, training.last_readable_step()
        # Estimate the step of the kill from the time since the last checkpoint, or since startup.
        steps_began = training.start_time + stats["startup_seconds"]
        if step > step_before:
            steps_began = (training.folder / f"model.ckpt-{step}.index").stat().st_mtime
        num_steps = (training.start_time + seconds - steps_began) / stats["seconds_per_step"]
        killed_at_step = max(step, 0) + min(max(num_steps, 0), save_steps)
        killed_at_step = int(min(killed_at_step, stats["last_step"]))
        unfinished = training.unfinished_files() - training.previous_unfinished
        files, resumed = sorted(name for name, _ in unfinished), training.resumed_step()
        row = (phase, round(seconds, 1), step_before, resumed, killed_at_step, step, files)
        rows.append(dict(zip(COLUMNS, row, strict=True)))
        num_damaged += step < step_before or step != training.last_step()
        print("|", " | ".join(map(str, row)), "|", flush=True)
    num_above_0 = sum((row["resumed from"] or 0) > 0 for row in rows[1:])
    num_during_write = sum(bool(row["unfinished files"]) for row in rows)
    results = {
        "kills": len(rows) - 1,
        "restarts above step 0": num_above_0,
        "kills during a write": num_during_write,
    }
    return {**results, "starts": rows}, {
        "finished after all kills": len(rows) == kills + 1 and exit_code == 0,
        "no checkpoint lost or damaged": not num_damaged,
        "always resumed from the last checkpoint": all(
            row["resumed from"] in (None, row["last readable before"]) for row in rows
        ),
        "at least 3/4 of the restarts resumed above step 0": num_above_0 >= 0.75 * kills,
        "at least one kill during a write": num_during_write > 0,
    }


def run_out_of_space(
    training: TrainingRun, reference: TrainingRun, last: int
) -> tuple[dict[str, Any], dict[str, bool]]:
    """Trains with too little disk space for the third checkpoint; returns statistics and checks."""
    disk = training.folder.parent
    filler = disk / "filler"
    filler.unlink(missing_ok=True)
    checkpoint_bytes = _disk_usage(reference.folder, f"model.ckpt-{last}.*")
    total = _disk_usage(reference.folder)
    required, free = total + 2 * checkpoint_bytes, shutil.disk_usage(disk).free
    if not disk.is_mount() or free < required:
        sys.exit(f"{disk} must be the root of a file system with at least {required} bytes free")
    # Leave space for two and a half checkpoints, and for all files that are not checkpoints.
    to_leave = total - _disk_usage(reference.folder, "model.ckpt-*") + 5 * checkpoint_bytes // 2
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free - to_leave)
    exit_code = training.run()
    lines = training.log.read_text().splitlines()
    errors = [line for line in lines if line.startswith(("ERROR", "Traceback"))]
    latest, step = checkpoints.latest(str(training.folder)), training.last_readable_step()
    filler.unlink()
    next_exit_code = training.run()
    return {"errors": errors, "stopped at": step}, {
        "stopped with exit code 1": exit_code == 1,
        "printed one ERROR line": len(errors) == 1,
        "error names the last checkpoint": bool(re.search(rf"{latest}(?!\d)", str(errors))),
        "resumed from the last checkpoint, above step 0": 0 < step == training.resumed_step(),
        "finished once space was available": next_exit_code == 0,
    }


def _disk_usage(folder: Path, pattern: str = "*") -> int:
    return sum(file.stat().st_blocks * 512 for file in folder.glob(pattern))


def read_tensors(prefix: str) -> dict[str, tuple]:
    """Returns the dtype, shape and digest of each tensor in a checkpoint."""
    tensors = checkpoints.read(prefix, checkpoints.shapes(prefix))
    return {name: (t.dtype, t.shape, hashlib.sha256(t.tobytes()).digest()) for name, t in tensors}


def main() -> None:
    """Kills a run, or fills its disk; prints the results and writes them to --work_dir."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument(
        "--model_dir",
        required=True,
        type=Path,
        help="folder with vocabulary, configuration and weights",
    )
    parser.add_argument("--data_dir", required=True, help="folder of MRPC")
    parser.add_argument(
        "--work_dir", required=True, type=Path, help="folder for runs, logs and results"
    )
    parser.add_argument("--kills", type=int, default=20, help="number of kills")
    parser.add_argument("--seed", type=int, default=1, help="random seed of the kill times")
    parser.add_argument("--full_disk", action="store_true", help="fill the disk, kill nothing")
    parser.add_argument("--small_dir", type=Path, help="small file system, for --full_disk")
    for name, default in FLAGS.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    args, flags = parser.parse_known_args()  # Unknown flags are for run_classifier.py.
    if args.full_disk and not args.small_dir:
        parser.error("--full_disk needs --small_dir")
    flags += ["--task_name=MRPC", "--do_train=true", f"--vocab_file={args.model_dir}/vocab.txt"]
    flags += [f"--bert_config_file={args.model_dir}/bert_config.json"]
    flags += [f"--init_checkpoint={args.model_dir}/bert_model.ckpt", f"--data_dir={args.data_dir}"]
    flags += [f"--{name}={getattr(args, name)}" for name in FLAGS]
    random.seed(args.seed)
    args.work_dir.mkdir(parents=True, exist_ok=True)
    reference = TrainingRun(flags, args.work_dir / "uninterrupted", args.work_dir)
    stats = run_uninterrupted(reference, args.save_checkpoints_steps)
    name, parent = ("full_disk", args.small_dir) if args.full_disk else ("killed", args.work_dir)
    training = TrainingRun(flags, parent / name, args.work_dir)
    shutil.rmtree(training.folder, ignore_errors=True)
    if args.full_disk:
        results, checks = run_out_of_space(training, reference, stats["last_step"])
    else:
        results, checks = kill_and_resume(training, args.kills, args.save_checkpoints_steps, stats)
    expected, actual = (
        read_tensors(f"{run.folder}/model.ckpt-{stats['last_step']}")
        for run in (reference, training)
    )
    names = {**expected, **actual}
    different = sorted(name for name in names if expected.get(name) != actual.get(name))
    checks["all tensors are equal"] = not different
    result = {"command": training.command, "uninterrupted": stats, **results}
    expected_files, actual_files = (
        {f.name for f in run.folder.glob("model.ckpt-*")} for run in (reference, training)
    )
    # Files that the uninterrupted run does not have, such as those of unfinished checkpoints.
    result |= {"extra files": sorted(actual_files - expected_files), "tensors": len(expected)}
    result |= {"different": different, "checks": checks}
    (args.work_dir / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({key: result[key] for key in result if key != "starts"}, indent=1))
    sys.exit(not all(checks.values()))


if __name__ == "__main__":
    main()
