"""Training: set-up, the loop and its checkpoints.

All of a run is a function of its seed and the step, so that a checkpoint holds all of the past. Each step

1. draws its batches,
2. computes the gradient, rejects one that is not finite, and changes the weights,
3. logs the mean metrics, every ``log_every`` steps,
4. validates, every ``validate_every`` steps, and keeps the weights if they are the best so far,
5. writes a checkpoint, every ``checkpoint_every`` steps and when somebody asks the run to stop.

In the end results.json says how the weights were selected.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from copy import deepcopy
from math import inf, isfinite, isnan, nan
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed
from lightning_fabric import Fabric
from safetensors.torch import load as load_safetensors

from okapi.config import Config, ConfigError, differences
from okapi.console import Counting, say
from okapi.data.batches import Batch, batch_loader
from okapi.data.splits import SPLITS
from okapi.files import remove_unfinished, write_bytes
from okapi.runs import Opened, Results, Run, Started, WeightsFile
from okapi.runs.checkpoints import Checkpoint, has_checkpoint, read_checkpoint, read_newest, save_checkpoint
from okapi.runs.run import environment
from okapi.runs.weights_file import sha256, weights_bytes
from okapi.training.card import model_card
from okapi.training.devices import as_launched, make_fabric
from okapi.training.errors import InterruptedRunError, NotFiniteError, RunError
from okapi.training.interrupts import Interrupts
from okapi.training.learner import Learner
from okapi.training.logger import Logger, Means, check_trackers
from okapi.training.monitor import Monitor
from okapi.training.offline import check_erm_run, read_matches
from okapi.training.reference import make_reference, write_reference
from okapi.training.selection import ORACLE, Selection
from okapi.training.setup import Parts, build_batches, build_parts
from okapi.training.validation import Validation


def train(config: Config, out: Path) -> Results:
    """Begin a run and train to its end.

    Parameters
    ----------
    config : Config
    out : Path
        The run directory: new, or empty.

    Returns
    -------
    Results
    """
    run = Run(out)
    config = as_launched(config)
    fabric = make_fabric(config)
    if fabric.is_global_zero:
        run.check_new()
    parts = prepare(config, run)
    fabric.launch()
    with ExitStack() as stack:
        if fabric.is_global_zero:
            run.path.mkdir(parents=True, exist_ok=True)
            stack.enter_context(run.locked())
            run.create(config, parts.dataset)
        fabric.barrier()
        return _fit(config, parts, fabric, run, None)


def resume(out: Path, overrides: Sequence[tuple[str, str]] = ()) -> Results | None:
    """Resume a run from its newest good checkpoint, to its end; the result is as if it had never stopped.

    Parameters
    ----------
    out : Path
        The run directory.
    overrides : sequence of (key, text)
        Of ``okapi.config.MAY_CHANGE`` only.

    Returns
    -------
    Results, or None if the run was finished before
    """
    run = Run(out)
    run.check_begun()
    if run.state == "finished":
        return None
    config = as_launched(run.config(overrides))
    _reject_changes(run.config().as_dict(), config, "config.yaml")
    fabric = make_fabric(config)
    with ExitStack() as stack:
        checkpoint = None
        if fabric.is_global_zero:
            stack.enter_context(run.locked())
            checkpoint = _newest(run, config)
            _check_environment(run, checkpoint)
        parts = prepare(config, run)
        fabric.launch()
        if fabric.is_global_zero:
            run.write_config(config)
        name = fabric.broadcast(checkpoint.path.name if checkpoint else None)
        if name and checkpoint is None:
            checkpoint = read_checkpoint(run.checkpoints / name)
        return _fit(config, parts, fabric, run, checkpoint)


def prepare(config: Config, run: Run | None = None) -> Parts:
    """Return the parts of a run, rejecting all that can be rejected before anything is written."""
    check_trackers(config)
    check_erm_run(config, run)
    try:
        return build_parts(config, resumed=run is not None and has_checkpoint(run.checkpoints))
    except TypeError as error:  # a network that cannot take the data
        raise ConfigError(str(error)) from error
    except RuntimeError as error:
        if "allocate memory" not in str(error) and "out of memory" not in str(error):
            raise
        raise ConfigError(
            f"model {config.model.name} and algorithm {config.algorithm.name} need more memory than there is: "
            "make the model narrower, or algorithm.bank smaller"
        ) from None


def _newest(run: Run, config: Config) -> Checkpoint | None:
    """Return where to resume, if there is a checkpoint, and report which were rejected."""
    remove_unfinished(run.path)
    checkpoint, rejected = read_newest(run.checkpoints)
    for path, reason in rejected:
        say(f"Rejected {path.name.removesuffix('.rejected')}: {reason}. It is now {path}")
    if checkpoint is None:
        say(f"{run.path} has no checkpoint yet: the run begins again")
    else:
        _reject_changes(checkpoint.config, config, f"checkpoint {checkpoint.path.name}")
        say(f"Resuming after step {checkpoint.step}, from {checkpoint.path}")
    return checkpoint


def _check_environment(run: Run, checkpoint: Checkpoint | None) -> None:
    """Write environment.json anew where it is missing or damaged; the checkpoint knows the number of threads."""
    try:
        run.environment()
    except ValueError as error:
        say(f"{error}; it is written anew")
        run.write_environment(checkpoint.state["threads"] if checkpoint else None)


def _reject_changes(before: dict[str, Any], config: Config, what: str) -> None:
    if changes := differences(before, config.as_dict()):
        raise ConfigError(
            f"a run must be resumed with the config it began with, this differs from its {what}: {'; '.join(changes)}"
        )


def _fit(config: Config, parts: Parts, fabric: Fabric, run: Run, checkpoint: Checkpoint | None) -> Results:
    try:
        before = run.environment()
        torch.set_num_threads(before["threads"])
        if fabric.is_global_zero:
            now = environment()
            if changes := [
                f"{key}: {before.get(key)} then, {now[key]} now" for key in now if before.get(key) != now[key]
            ]:
                say(f"Note: the environment has changed, results may differ in the last bits. {'; '.join(changes)}")
        return Trainer(config, parts, fabric, run, checkpoint).fit()
    except OSError as error:
        raise RunError(
            f"{error}; what was written before is good. That mended, resume with: okapi train --resume {run.path}"
        ) from error


class Trainer:
    """A run at some step: what it has learnt, the best weights so far, and its files.

    Parameters
    ----------
    config : Config
    parts : Parts
    fabric : Fabric
        Launched. All processes have a trainer; the first one writes.
    run : Run
        Created.
    checkpoint : Checkpoint, optional
        Where to resume; by default the run begins.
    """

    def __init__(
        self, config: Config, parts: Parts, fabric: Fabric, run: Run, checkpoint: Checkpoint | None = None
    ) -> None:
        self.config, self.fabric, self.run = config, fabric, run
        self.dataset, self.algorithm, self.started_from = parts
        self.step = 0
        self.learner = Learner(config, self.algorithm, fabric)
        self.selection = Selection(config.training, self.dataset)
        self.validation = Validation(config, self.dataset, self.algorithm, self.selection, fabric)
        self.means = Means()
        self.monitor = Monitor(config)
        self.seconds = self.waited = 0.0  # since the last line of timings.csv
        self.images = 0
        self.logger: Logger | None = None
        self.metrics_so_far = ""
        self.best = b""  # content of model.safetensors
        self.last_checkpoint: Path | None = None
        if checkpoint is not None:
            self._load(checkpoint)
        elif config.training.selector is None and fabric.is_global_zero:
            say(f"Weights are selected by {self.selection.selector.name}: training.selector is not set")
        if fabric.is_global_zero:
            read_matches(config, self.dataset, run, fabric.device)  # found once, and written
        fabric.barrier()
        matches = read_matches(config, self.dataset, run, fabric.device)
        self.batches = build_batches(config, parts, matches, fabric.global_rank, fabric.world_size)

    # The loop

    @property
    def is_done(self) -> bool:
        """Whether the run has come to its end: after its last step, or when patience is exhausted."""
        return self.step == self.config.training.steps or self.selection.exhausted

    def fit(self) -> Results:
        """Train to the end of the run; return its results."""
        settings, fabric = self.config.training, self.fabric
        with ExitStack() as stack:
            interrupts = stack.enter_context(Interrupts())  # before the loader's processes begin, which inherit it
            if fabric.is_global_zero:
                run_id = self.run.environment()["run"]
                logger = Logger(self.config, self.run, run_id, self.step, self.metrics_so_far)
                self.logger = stack.enter_context(closing(logger))
            display = Counting(self.step, settings.steps, "steps", every=inf, shown=fabric.is_global_zero)
            self.display = stack.enter_context(display)
            batches = iter(
                batch_loader(
                    self.batches,
                    self.step * settings.accumulate,
                    settings.steps * settings.accumulate,
                    settings.workers,
                    pin_memory=fabric.device.type == "cuda",
                )
            )
            if self.started_from and self.last_checkpoint is None:
                self.save()  # from here on the run that it starts from may change, or go
            stop = False
            while not (self.is_done or stop):
                self.train_step(batches)
                if self._is_due(settings.log_every):
                    self.log()
                if self._is_due(settings.validate_every):
                    self.validate()
                stop = interrupts.anywhere(fabric)
                if self._is_due(settings.checkpoint_every) or self.selection.exhausted or stop:
                    self.save()
        if not self.is_done:
            raise InterruptedRunError(
                f"stopped after step {self.step} of {settings.steps}; resume with: okapi train --resume {self.run.path}"
            )
        return self.finish()

    def train_step(self, loader: Iterator[Batch]) -> None:
        """Draw the batches of a step and learn from them."""
        began = time.perf_counter()
        batches = self._draw(loader)
        waited = time.perf_counter() - began
        try:
            metrics = self.learner.differentiate(batches, self.step)
        except ValueError as error:
            raise RunError(self._at_step(str(error), _ids(self.dataset.ids, batches))) from error
        if not self.learner.is_finite(metrics):
            what = "gradient_norm" if isfinite(metrics["loss"]) else "loss"
            ids = _of_all_processes(_ids(self.dataset.ids, batches), self.fabric)
            rate = f"training.learning_rate ({self.config.training.learning_rate:g})"
            raise NotFiniteError(self._at_step(f"{what} is {metrics[what]}; lower {rate} in a new run", ids))
        metrics["learning_rate"] = self.learner.update(self.step)
        self.step += 1
        self.means.add(metrics)
        self.monitor.see(metrics["loss"])
        seconds = time.perf_counter() - began
        images = sum(map(len, batches)) * self.fabric.world_size
        self.seconds, self.waited, self.images = self.seconds + seconds, self.waited + waited, self.images + images
        shown = [f"loss {metrics['loss']:.4g}", f"{images / seconds:,.0f} images/s"]
        if not isnan(match_rate := metrics.get("match_rate", nan)):
            shown.insert(1, f"match rate {match_rate:.1%}")
        self.display.add(1, "  ".join(shown), due=self._is_due(self.config.training.log_every))

    def log(self) -> None:
        """Write the mean metrics of the steps since the last time."""
        means = self.means.take()
        if self.logger:
            self.logger.write(self.step, "train", means)
            self.logger.write_times(self.step, self.seconds, self.images, self.waited)
        self.seconds, self.waited, self.images = 0.0, 0.0, 0
        if note := self.monitor.check(self.step, means):
            self.display.say(f"Warning: {note}")

    def validate(self) -> None:
        """Measure the network on the validation splits; keep its weights if they are the best so far."""
        try:
            metrics = self.validation.metrics()
        except NotFiniteError as error:
            raise NotFiniteError(f"{error} after step {self.step}; {self._last_good()}") from error
        is_best = self.selection.consider(self.step, metrics)
        if is_best:
            self.validation.keep()
        if self.logger:
            for split, values in metrics.items():
                self.logger.write(self.step, split, values)
            if is_best:
                self.best = weights_bytes(self.algorithm.network.state_dict(), self.step)
                write_bytes(self.run.weights_file, self.best)
        self.display.say(self.selection.sentence(self.step, metrics))

    # Checkpoints and results

    def save(self) -> None:
        """Write a checkpoint."""
        if not all(bool(weight.isfinite().all()) for weight in self.algorithm.parameters()):
            raise NotFiniteError(f"weights are not finite after step {self.step}; {self._last_good()}")
        self.last_checkpoint = self.run.checkpoints / f"step-{self.step:08d}"
        if self.logger:
            state = {
                "learner": self.learner.state_dict(),
                "selection": self.selection.state_dict(),
                "validation": self.validation.state_dict(),
                "means": self.means.state_dict(),
                "monitor": self.monitor.state_dict(),
                "metrics": self.logger.sync(),
                "weights": torch.from_numpy(np.frombuffer(self.best, dtype=np.uint8).copy()),
                "started_from": self.started_from,
                "threads": torch.get_num_threads(),
            }
            save_checkpoint(self.run.checkpoints, self.step, state, config=self.config.as_dict())

    def _load(self, checkpoint: Checkpoint) -> None:
        """Go back to a checkpoint."""
        state = checkpoint.state
        self.step, self.last_checkpoint = checkpoint.step, checkpoint.path
        self.learner.load_state_dict(state["learner"])
        self.selection.load_state_dict(state["selection"])
        self.validation.load_state_dict(state["validation"])
        self.means.load_state_dict(state["means"])
        self.monitor.load_state_dict(state["monitor"])
        self.metrics_so_far, self.started_from = state["metrics"], state["started_from"]
        self.best = state["weights"].numpy().tobytes()
        if self.fabric.is_global_zero:
            self._check_files()

    def _check_files(self) -> None:
        """Bring back the weights if something else has changed them, and report a log that was edited."""
        file, log = self.run.weights_file, self.run.metrics_file
        if self.best and not (file.is_file() and file.read_bytes() == self.best):
            say(f"{file} is not as it was at step {self.step}; it is restored from the checkpoint")
            write_bytes(file, self.best)
        written = log.read_bytes() if log.is_file() else b""
        if not written.startswith(self.metrics_so_far.encode()):
            say(f"{log} was removed or edited; it is begun anew from the checkpoint")

    def finish(self) -> Results:
        """Write and return how the weights were selected."""
        if self.fabric.is_global_zero:
            self._check_files()
        results = Results(
            steps=self.step,
            stopped_early=self.step < self.config.training.steps,
            selection=self.selection.summary(),
            weights=WeightsFile(file=self.run.weights_file.name, sha256=self.fabric.broadcast(sha256(self.best))),
            started_from=Started(**self.started_from) if self.started_from else None,
            seed=self.config.seed,
            splits={split: len(self.dataset.rows(split)) for split in SPLITS},
            config=self.config.as_dict(),
            notes=self.monitor.notes,
            opened={ORACLE: Opened(times=self.selection.validations)} if self.selection.is_oracle else {},
        )
        if self.fabric.is_global_zero:
            self._describe(results)
            self.run.finish(results)
        self.fabric.barrier()
        return results

    def _describe(self, results: Results) -> None:
        """Write the model card, and the labelled samples that new ones will be compared with."""
        network = deepcopy(self.algorithm.network)
        network.load_state_dict(load_safetensors(self.best))
        options = {"batch_size": self.config.training.evaluation_batch, "workers": self.config.training.workers}
        reference = make_reference(network, self.dataset, self.config.seed, **options)
        write_reference(self.run.reference_file, reference)
        card = model_card(self.run, results, network, self.dataset, **options)
        write_bytes(self.run.card_file, card.encode())

    # Parts of a step

    def _is_due(self, every: int) -> bool:
        """Return whether something is due that happens every so many steps, and after the last."""
        return self.step % every == 0 or self.step == self.config.training.steps

    def _draw(self, loader: Iterator[Batch]) -> list[Batch]:
        try:
            return [next(loader) for _ in range(self.config.training.accumulate)]
        except (ValueError, TypeError, RuntimeError, OSError) as error:  # also of another process, whose trace it holds
            reason = str(error).strip().splitlines()[-1]
            raise RunError(f"the batch of step {self.step + 1} cannot be made: {reason}") from error

    def _at_step(self, what: str, ids: Sequence[str]) -> str:
        """Return what is wrong, at which step, where to go back to, and which samples were involved."""
        where = f"step {self.step + 1}: {what}; {self._last_good()}"
        return f"{where}; the samples of the batch are {', '.join(ids)}"

    def _last_good(self) -> str:
        if self.last_checkpoint is None:
            return "there is no checkpoint before it"
        return f"the last good checkpoint is {self.last_checkpoint}"


def _ids(ids: Sequence[str], batches: Sequence[Batch]) -> list[str]:
    """Return the ids of the samples of some batches."""
    pools = [pool for batch in batches for pool in (batch.labelled, batch.unlabelled) if pool]
    return [ids[row] for pool in pools for row in pool.id.tolist()]


def _of_all_processes(ids: list[str], fabric: Fabric) -> list[str]:
    """Return the ids that all processes have; all of them must call it."""
    if fabric.world_size == 1:
        return ids
    gathered: list[Any] = [None] * fabric.world_size
    torch.distributed.all_gather_object(gathered, ids)
    return [one for each in gathered for one in each]
