"""The training loop. All of it is a function of the seed and the step, so that a checkpoint holds all of the past.

Each step
1. draws its batches,
2. computes the gradient, refuses one that is not finite, and changes the weights,
3. writes figures down, every ``log_every`` steps,
4. validates, every ``validate_every`` steps, and keeps the weights if they are the best so far,
5. writes a checkpoint, every ``checkpoint_every`` steps and when somebody asks the run to stop.
In the end results.json says how the weights were selected.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from math import isfinite, nan
from typing import Any, NamedTuple

import torch.distributed
from lightning_fabric import Fabric
from torch import Tensor

from okapi.config import Config
from okapi.data.batches import Batch, batch_loader
from okapi.data.splits import SPLITS
from okapi.files import write_bytes
from okapi.runs import Opened, Results, Run, Started, WeightsFile
from okapi.runs.checkpoints import Checkpoint, save_checkpoint
from okapi.runs.weights import sha256, weights_bytes
from okapi.training.errors import InterruptedRunError, NotFiniteError, RunError
from okapi.training.interrupts import Interrupts
from okapi.training.label_free import LabelFreeScores
from okapi.training.learner import Learner
from okapi.training.logbook import Logbook
from okapi.training.parts import Parts, build_batches
from okapi.training.progress import Display
from okapi.training.selection import ORACLE, Selection
from okapi.training.validation import VALIDATION, predict, validate
from okapi.training.validation_matches import ValidationMatches


def fit(
    config: Config,
    parts: Parts,
    fabric: Fabric,
    folder: Run,
    *,
    run_id: str = "",
    matches: Tensor | None = None,
    checkpoint: Checkpoint | None = None,
) -> Results:
    """Train to the end of the run; return its results. All processes call it, the first one writes.

    Parameters
    ----------
    config : Config
    parts : Parts
    fabric : Fabric
        Launched.
    folder : Run
        Created.
    run_id : str
        By which trackers know the run again.
    matches : tensor (n,), int64, optional
        Rows of the matches, -1 for none; for offline Okapi.
    checkpoint : Checkpoint, optional
        Where to go on; by default the run begins.
    """
    settings = config.training
    with ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts())  # before the loader's processes begin, which inherit it
        run = _Run(config, parts, fabric, folder, run_id, checkpoint, stack)
        batches = build_batches(config, parts, matches, fabric.global_rank, fabric.world_size)
        loader = batch_loader(
            batches,
            run.done * settings.accumulate,
            settings.steps * settings.accumulate,
            settings.workers,
            pin_memory=fabric.device.type == "cuda",
        )
        if run.started_from and checkpoint is None:
            run.save()  # from here on the run that it starts from may change, or go
        drawing = iter(loader)
        stop = False
        while run.done < settings.steps and not run.selection.exhausted and not stop:
            run.learn(_draw(drawing, settings.accumulate, run.done))
            if run.is_time(settings.log_every):
                run.log()
            if run.is_time(settings.validate_every):
                run.validate()
            stop = interrupts.anywhere(fabric)
            if run.is_time(settings.checkpoint_every) or run.selection.exhausted or stop:
                run.save()
    if run.done < settings.steps and not run.selection.exhausted:
        raise InterruptedRunError(
            f"stopped after step {run.done} of {settings.steps}; go on with: okapi train --resume {folder.path}"
        )
    return run.finish()


class _Drawn(NamedTuple):
    """The batches of a step, and how long it took to get them."""

    batches: list[Batch]
    seconds: float


class _Run:
    """A run at some step, ``done``: what it has learnt, the best weights so far, and its files."""

    def __init__(
        self,
        config: Config,
        parts: Parts,
        fabric: Fabric,
        folder: Run,
        run_id: str,
        checkpoint: Checkpoint | None,
        stack: ExitStack,
    ) -> None:
        self.config, self.parts, self.fabric, self.folder = config, parts, fabric, folder
        self.done, self.started_from = 0, parts.started_from
        self.learner = Learner(config, parts.algorithm, fabric)
        self.selection = Selection(config.training, parts.dataset.task)
        self.scores = LabelFreeScores(config, parts.dataset) if self.selection.is_label_free else None
        self.matches = ValidationMatches(config, parts) if parts.algorithm.matching else None
        self.saved = None if checkpoint is None else checkpoint.path
        if checkpoint is not None:
            self.done, self.started_from = checkpoint.step, checkpoint.state.get("started_from")
            self.learner.load_state_dict(checkpoint.state["learner"])
            self.selection.load_state_dict(checkpoint.state["selection"])
            if self.scores:
                self.scores.load_state_dict(checkpoint.state["scores"])
        self.logbook: Logbook | None = None
        if fabric.is_global_zero:
            metrics = "" if checkpoint is None else checkpoint.state["logbook"]["metrics"]
            self.logbook = stack.enter_context(closing(Logbook(config, folder, run_id, self.done, metrics)))
            if checkpoint is not None:
                self.logbook.load_state_dict(checkpoint.state["logbook"])
        display = Display(self.done, config.training.steps, shown=fabric.is_global_zero)
        self.display = stack.enter_context(display)

    def is_time(self, every: int) -> bool:
        """Return whether something is due that happens every so many steps, and after the last."""
        return self.done % every == 0 or self.done == self.config.training.steps

    def learn(self, drawn: _Drawn) -> None:
        """Do one step."""
        began = time.perf_counter()
        try:
            figures = self.learner.differentiate(drawn.batches, self.done)
        except ValueError as error:
            raise RunError(self._trouble(str(error), self._names(drawn.batches))) from error
        if not self.learner.is_finite(figures):
            what = "gradient_norm" if isfinite(figures["loss"]) else "loss"
            names = _of_all(self._names(drawn.batches), self.fabric)
            raise NotFiniteError(self._trouble(f"{what} is {figures[what]}", names))
        figures["learning_rate"] = self.learner.update(self.done)
        seconds = drawn.seconds + time.perf_counter() - began
        images = sum(map(len, drawn.batches)) * self.fabric.world_size
        self.done += 1
        if self.logbook:
            self.logbook.add(figures, seconds=seconds, waited=drawn.seconds, images=images)
        self.display.update(
            self.done,
            loss=figures["loss"],
            match_rate=figures.get("match_rate", nan),
            images_per_second=images / seconds,
            due=self.is_time(self.config.training.log_every),
        )

    def log(self) -> None:
        """Write the mean figures of the steps since the last time."""
        if self.logbook:
            self.logbook.write_training(self.done)

    def validate(self) -> None:
        """Measure the network on the validation splits; keep its weights if they are the best so far."""
        network = self.parts.algorithm.network
        try:
            figures = self._figures()
        except NotFiniteError as error:
            raise NotFiniteError(f"{error} after step {self.done}; {self._last_good()}") from error
        better = self.selection.consider(self.done, figures)
        if better and self.scores:
            self.scores.keep()
        if self.logbook:
            for split, its in figures.items():
                self.logbook.write_figures(self.done, split, its)
            if better:
                write_bytes(self.folder.weights_file, weights_bytes(network.state_dict(), self.done))
        self.display.say(self.selection.sentence(self.done, figures))

    def _figures(self) -> dict[str, dict[str, float]]:
        """Return figures by split; test splits stay sealed, but for the one of the oracle."""
        dataset, network = self.parts.dataset, self.parts.algorithm.network
        splits = [split for split in VALIDATION if len(dataset.rows(split))]
        if self.matches and splits:
            self.matches.encode(self.fabric)
        figures = {split: self._validate(split, self.matches) for split in splits}
        if self.selection.is_oracle:
            figures["oracle"] = self._validate(ORACLE, None)
        if self.scores:
            figures["unlabelled"] = self.scores.figures(network, self.fabric)
        return figures

    def _validate(self, split: str, matches: ValidationMatches | None) -> dict[str, float]:
        dataset, network, settings = self.parts.dataset, self.parts.algorithm.network, self.config.training
        wanted = matches.rows(split) if matches else False
        found = predict(network, dataset, split, settings, self.fabric, encodings=wanted)
        return validate(dataset, split, found.prediction) | (matches.figures(split, found) if matches else {})

    def save(self) -> None:
        """Write a checkpoint."""
        if not all(bool(weight.isfinite().all()) for weight in self.parts.algorithm.parameters()):
            raise NotFiniteError(f"weights are not finite after step {self.done}; {self._last_good()}")
        self.saved = self.folder.checkpoints / f"step-{self.done:08d}"
        if self.logbook:
            state = {
                "learner": self.learner.state_dict(),
                "selection": self.selection.state_dict(),
                "logbook": self.logbook.state_dict(),
                "scores": self.scores.state_dict() if self.scores else {},
                "started_from": self.started_from,
            }
            save_checkpoint(self.folder.checkpoints, self.done, state, config=self.config.as_dict())

    def finish(self) -> Results:
        """Write and return how the weights were selected."""
        weights = sha256(self.folder.weights_file.read_bytes()) if self.fabric.is_global_zero else ""
        results = Results(
            steps=self.done,
            stopped_early=self.done < self.config.training.steps,
            selection=self.selection.summary(),
            weights=WeightsFile(file=self.folder.weights_file.name, sha256=self.fabric.broadcast(weights)),
            started_from=Started(**self.started_from) if self.started_from else None,
            seed=self.config.seed,
            splits={split: len(self.parts.dataset.rows(split)) for split in SPLITS},
            config=self.config.as_dict(),
            opened={ORACLE: Opened(times=self.selection.validations)} if self.selection.is_oracle else {},
        )
        if self.fabric.is_global_zero:
            self.folder.finish(results)
        self.fabric.barrier()
        return results

    def _names(self, batches: Sequence[Batch]) -> list[str]:
        """Return the ids of the samples of some batches."""
        pools = [pool for batch in batches for pool in (batch.labelled, batch.unlabelled) if pool]
        return [self.parts.dataset.ids[row] for pool in pools for row in pool.id.tolist()]

    def _trouble(self, what: str, names: Sequence[str]) -> str:
        """Return what is wrong, at which step, where to go back to, and which samples were involved."""
        where = f"step {self.done + 1}: {what}; {self._last_good()}"
        return f"{where}; the samples of the batch are {', '.join(names)}"

    def _last_good(self) -> str:
        return f"the last good checkpoint is {self.saved}" if self.saved else "there is no checkpoint before it"


def _draw(drawing: Iterator[Batch], count: int, done: int) -> _Drawn:
    """Return the batches of the next step."""
    began = time.perf_counter()
    try:
        batches = [next(drawing) for _ in range(count)]
    except (ValueError, TypeError, RuntimeError, OSError) as error:  # also of another process, whose trace it holds
        reason = str(error).strip().splitlines()[-1]
        raise RunError(f"the batch of step {done + 1} cannot be made: {reason}") from error
    return _Drawn(batches, time.perf_counter() - began)


def _of_all(names: list[str], fabric: Fabric) -> list[str]:
    """Return the names that all processes have; all of them must call it."""
    everyones: list[Any] = [names]
    if fabric.world_size > 1:
        everyones = [None] * fabric.world_size
        torch.distributed.all_gather_object(everyones, names)
    return [name for its in everyones for name in its]
