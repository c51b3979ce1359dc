"""Okapi in scikit-learn's style: a classifier and a regressor that learn from unlabelled rows of other sites, too."""

import copy
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    RegressorMixin,
    TransformerMixin,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import (
    assert_all_finite,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)
from torch import Tensor, nn

from okapi.algorithms import ALGORITHMS, Algorithm
from okapi.algorithms.cross_domain import CrossDomainAlgorithm
from okapi.config import ERMSettings, FixMatchSettings, MomentumSettings, OkapiPlusSettings, OkapiSettings
from okapi.data.batches import Batch, Samples
from okapi.data.sampling import Stream
from okapi.data.task import Task
from okapi.matching import Matches
from okapi.models.encoders import MLP
from okapi.models.network import Network
from okapi.nn import Cosine, match

Method: TypeAlias = Literal["okapi_plus", "okapi", "erm", "fixmatch"]
Settings: TypeAlias = ERMSettings | FixMatchSettings | OkapiSettings | OkapiPlusSettings

_AT_ONCE = 128  # rows that are encoded together, always as many: so a row's encoding does not depend on the others
_RECORDS = 100  # of the history
_METHODS = ("okapi_plus", "okapi", "erm", "fixmatch")


@dataclass(frozen=True)
class _Rows:
    """All rows of a fit on the device: the labelled ones and the others, with domains and, where known, targets."""

    inputs: Tensor
    domain: Tensor
    target: Tensor  # of all rows; those of unlabelled ones mean nothing
    labelled: NDArray[np.int64]
    unlabelled: NDArray[np.int64]


class _Okapi(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """What classifier and regressor share."""

    _kind: ClassVar[Literal["classification", "regression"]]

    def __init__(
        self,
        method: Method = "okapi_plus",
        *,
        encoder: nn.Module | None = None,
        settings: Settings | None = None,
        steps: int = 1000,
        batch_size: int = 64,
        learning_rate: float = 1e-3,
        scale: Literal["standard", "unit"] | None = "standard",
        noise: float = 0.1,
        strong_noise: float = 0.5,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.encoder = encoder
        self.settings = settings
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.scale = scale
        self.noise = noise
        self.strong_noise = strong_noise
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    # --- Fitting ------------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any,
        domain: ArrayLike | None = None,
        X_unlabelled: Any = None,
        domain_unlabelled: ArrayLike | None = None,
    ) -> Self:
        """Learn from labelled and unlabelled rows.

        Parameters
        ----------
        X : array, DataFrame, sparse matrix or tensor (n, features); with an ``encoder`` of yours (n, ...)
        y : array (n,); of a regressor also (n, outputs)
            NaN or None: the row is unlabelled. In a classifier -1 says so, too, where y is an integer with two other
            values or more: {-1, 1} are two classes.
        domain : array (n,), optional
            Where each row comes from. By default labelled and unlabelled rows are the two domains.
        X_unlabelled : like X, optional
            More rows without labels.
        domain_unlabelled : array, optional
            Their domains; needed if there is a domain.
        """
        self._check_settings()
        if y is None:
            raise ValueError(f"This {type(self).__name__} requires y to be passed, but the target y is None.")
        X = self._inputs(X, reset=True)
        check_consistent_length(X, y)
        y, known = self._known(y)
        if not known.any():
            raise ValueError("y has no labelled row: all of its values are missing")
        if X_unlabelled is not None:
            X = np.concatenate([X, self._inputs(X_unlabelled, name="X_unlabelled")])
        domains = _domains(domain, domain_unlabelled, len(known), len(X))
        target, task = self._target(y, known)
        labelled, unlabelled = np.flatnonzero(known), np.setdiff1d(np.arange(len(X)), np.flatnonzero(known))
        self._mean, self._deviation = _scale(X[labelled], self.scale)

        generator = check_random_state(self.random_state)
        device = _device(self.device)
        everything = torch.zeros(len(X), *target.shape[1:], dtype=target.dtype)
        everything[torch.from_numpy(labelled)] = target
        rows = _Rows(
            inputs=self._scaled(X).to(device),
            domain=_pool_domain(labelled, len(X)) if domains is None else domains,
            target=everything,
            labelled=labelled,
            unlabelled=unlabelled,
        )
        with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if device.type == "cuda" else []):
            torch.manual_seed(int(generator.randint(2**31)))
            self._fit(rows, task, domain is not None, device, seed=int(generator.randint(2**31)))
        return self

    def _fit(self, rows: _Rows, task: Task, by_label: bool, device: torch.device, seed: int) -> None:
        network = self._network(rows.inputs[:2], task).to(device)
        stages = self._stages(rows, by_label)
        self.history_: list[dict[str, float]] = []
        done = 0
        algorithm: Algorithm | None = None
        for settings, steps in stages:
            algorithm = ALGORITHMS[settings.name](
                network, task, settings, steps=steps, domains=int(rows.domain.max()) + 1
            ).to(device)
            self._train(algorithm, rows, steps, done, seed)
            done += steps
        self.network_ = network.eval()
        self._n_features_out = int(network.head.in_features)  # type: ignore[arg-type]
        self.matches_ = self._matches(algorithm, rows)

    def _stages(self, rows: _Rows, by_label: bool) -> list[tuple[Settings, int]]:
        """Return settings and the steps to learn with them; the paper's method starts from learnt weights."""
        method = self.method
        if method != "erm" and not len(rows.unlabelled):
            message = f"method {method!r} needs unlabelled rows and there are none: it learns as 'erm' does"
            warnings.warn(message, UserWarning, stacklevel=4)
            return [(ERMSettings(), self.steps)]
        settings = self.settings or _default_settings(method, self._kind)
        if by_label and isinstance(settings, OkapiSettings | OkapiPlusSettings):
            settings = replace(settings, domain="label")
        if method == "okapi":
            return [(ERMSettings(), ceil(self.steps / 2)), (settings, max(1, self.steps // 2))]
        return [(settings, self.steps)]

    def _train(self, algorithm: Algorithm, rows: _Rows, steps: int, done: int, seed: int) -> None:
        optimiser = torch.optim.AdamW(algorithm.parameter_groups(self.learning_rate), weight_decay=0.0)
        rates = [group["lr"] for group in optimiser.param_groups]
        schedule = Cosine(1.0, 0.0, steps)
        algorithm.train()
        every = max(1, self.steps // _RECORDS)
        for step, batch in enumerate(self._batches(algorithm, rows, steps, (seed + done) % 2**31)):
            loss, metrics = algorithm.training_step(batch, step)
            if not torch.isfinite(loss):
                raise FloatingPointError(
                    f"the loss is {loss.item()} at step {done + step + 1}: "
                    f"lower learning_rate, which is {self.learning_rate}"
                )
            loss.backward()
            for group, rate in zip(optimiser.param_groups, rates, strict=True):
                group["lr"] = rate * schedule(step)
            optimiser.step()
            optimiser.zero_grad()
            if (done + step + 1) % every == 0 or step + 1 == steps:
                self.history_.append(
                    {"step": done + step + 1, **{name: float(value) for name, value in metrics.items()}}
                )
                self._tell(len(self.history_))

    def _tell(self, count: int) -> None:
        """Print where the training is: every tenth record, or every one where ``verbose`` is above 1."""
        if self.verbose > 1 or (self.verbose and count % 10 == 0):
            record = dict(self.history_[-1])
            step = int(record.pop("step"))
            metrics = ", ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in record.items())
            print(f"{type(self).__name__}: step {step} of {self.steps}, {metrics}", flush=True)  # noqa: T201

    def _batches(self, algorithm: Algorithm, rows: _Rows, steps: int, seed: int) -> Iterator[Batch]:
        needs = algorithm.needs
        labelled = Stream(rows.labelled, self.batch_size, seed)
        unlabelled = Stream(rows.unlabelled, self.batch_size, seed + 1) if needs.unlabelled else None
        noise = float(rows.inputs.std()) if len(rows.inputs) > 1 else 1.0

        def samples(which: NDArray[np.int64], known: bool, strong: bool) -> Samples:
            index = torch.from_numpy(which)
            inputs = rows.inputs[index.to(rows.inputs.device)]
            return Samples(
                inputs=_noisy(inputs, self.noise * noise),
                domain=rows.domain[index].to(inputs.device),
                id=index.to(inputs.device),
                target=rows.target[index].to(inputs.device) if known else None,
                strong=_noisy(inputs, self.strong_noise * noise) if strong else None,
            )

        for step in range(steps):
            first = samples(labelled.rows_at(step), True, needs.strong == "all")
            if unlabelled is None:
                yield Batch(first)
            else:
                yield Batch(first, samples(unlabelled.rows_at(step), False, needs.strong != "none"))

    @torch.no_grad()
    def _matches(self, algorithm: Algorithm | None, rows: _Rows) -> Matches | None:
        """Return the labelled matches of unlabelled rows by the trained network; None: the method does not match."""
        if not isinstance(algorithm, CrossDomainAlgorithm):
            return None
        encodings, predictions = self._forward(rows.inputs)
        known, others = (torch.from_numpy(index) for index in (rows.labelled, rows.unlabelled))
        pools = [
            algorithm.pool(encodings[index], predictions[index], rows.domain[index], target)
            for index, target in ((others, None), (known, rows.target[known]))
        ]
        found = match(pools[0], pools[1], replace(algorithm.matching, direction=None), self._kind)
        if len(found) < 0.01 * len(others):
            warnings.warn(
                f"{len(found)} of {len(others)} unlabelled rows have a match: little is learnt from them. "
                "Widen or switch off the calipers in settings",
                ConvergenceWarning,
                stacklevel=5,
            )
        return Matches(others[found.query], known[found.key], found.distance)

    # --- Using --------------------------------------------------------------------------------------------------------

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Return the encodings (n, d) of rows."""
        encodings: NDArray[np.float32] = self._encode(X)[0].numpy()
        return encodings

    def _encode(self, X: Any) -> tuple[Tensor, Tensor]:
        check_is_fitted(self)
        return self._forward(self._scaled(self._inputs(X)))

    @torch.no_grad()
    def _forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return encodings and predictions of scaled rows, on the host."""
        device = next(self.network_.parameters()).device
        n = len(inputs)
        padded = torch.cat([inputs, inputs.new_zeros(-n % _AT_ONCE, *inputs.shape[1:])])
        outputs = [self.network_(part.to(device)) for part in padded.split(_AT_ONCE)]
        encodings, predictions = (torch.cat(parts)[:n].cpu() for parts in zip(*outputs, strict=True))
        return encodings, predictions

    # --- Parts --------------------------------------------------------------------------------------------------------

    def _check_settings(self) -> None:
        if self.method not in _METHODS:
            raise ValueError(f"method must be one of {', '.join(_METHODS)}, got {self.method!r}")
        for name in ("steps", "batch_size"):
            if not isinstance(value := getattr(self, name), int | np.integer) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be positive, got {self.learning_rate!r}")
        if self.scale not in ("standard", "unit", None):
            raise ValueError(f"scale must be 'standard', 'unit' or None, got {self.scale!r}")
        if self.settings is not None and self.settings.name != self.method:
            raise ValueError(f"settings are those of {self.settings.name!r}, but method is {self.method!r}")

    def _inputs(self, X: Any, reset: bool = False, name: str = "X") -> NDArray[np.float32]:
        """Return rows as an array; sparse ones are made dense."""
        if isinstance(X, Tensor):
            X = X.detach().cpu().numpy()
        validated = validate_data(
            self, X, reset=reset, dtype=np.float32, accept_sparse="csr", allow_nd=self.encoder is not None
        )
        rows: NDArray[np.float32] = validated.toarray() if sparse.issparse(validated) else validated
        return rows

    def _scaled(self, X: NDArray[np.float32]) -> Tensor:
        return torch.from_numpy(((X - self._mean) / self._deviation).astype(np.float32))

    def _network(self, sample: Tensor, task: Task) -> Network:
        if self.encoder is None:
            width = 128
            encoder: nn.Module = MLP(sample[0].numel(), hidden=(256,), out_features=width, dropout=0.1)
        else:
            encoder = copy.deepcopy(self.encoder).to(sample.device).eval()
            with torch.no_grad():
                shape = tuple(encoder(sample).shape)
            if len(shape) != 2 or shape[0] != len(sample):
                raise ValueError(f"encoder must give encodings (n, d), got shape {shape} of {len(sample)} rows")
            width = encoder.out_features = shape[1]
        return Network(encoder, nn.Linear(width, task.outputs))

    def _known(self, y: Any) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return targets as an array, and which of them are known."""
        raise NotImplementedError

    def _target(self, y: NDArray[Any], known: NDArray[np.bool_]) -> tuple[Tensor, Task]:
        """Return the known targets as the network learns them, and the task."""
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float32"]  # of any input
        return tags


class OkapiClassifier(ClassifierMixin, _Okapi):  # type: ignore[misc]
    """A classifier that learns from labelled rows and from unlabelled rows of other domains.

    Parameters
    ----------
    method : {"okapi_plus", "okapi", "erm", "fixmatch"}
        Ours, the paper's (whose first half of the steps is ERM, as it starts from learnt weights), empirical risk
        minimisation, which sees labelled rows only, or FixMatch.
    encoder : Module, optional
        Takes rows (n, ...) and gives encodings (n, d); it is copied. By default a perceptron of 256 and 128 units.
    settings : OkapiPlusSettings, OkapiSettings or FixMatchSettings, optional
        Of the method, from `okapi.config`.
    steps : int
        Of the optimiser.
    batch_size : int
        Labelled rows of a step, and unlabelled ones.
    learning_rate : float
        Of AdamW at the start; it falls to 0 along a cosine.
    scale : {"standard", "unit"} or None
        "standard": each feature has mean 0 and deviation 1 among the labelled rows. "unit": all are divided by one
        number, which suits embeddings. None: rows are taken as they are.
    noise, strong_noise : float
        Deviation of the noise that is added to rows in training, and to the strong views of FixMatch and Okapi+, in
        units of the deviation of all scaled inputs.
    device : str
        "auto" is a GPU where there is one.
    random_state : int, RandomState or None
        The same number gives the same model on the same machine.
    verbose : int
        1 prints a line for every tenth of the training, 2 ten times as many.

    Attributes
    ----------
    classes_ : array (n_classes,)
    network_ : Network
        The encoder and its head, in torch.
    matches_ : Matches or None
        Labelled matches (key) of unlabelled rows (query), by the trained network. Rows are counted through X, then
        X_unlabelled.
    history_ : list of dict
        Metrics of about a hundred steps.
    n_features_in_ : int

    See Also
    --------
    OkapiRegressor, okapi.matching.CaliperMatcher

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(200) % 2
    >>> X = rng.normal(size=(200, 5)) + 2 * y[:, None]
    >>> some = np.where(np.arange(200) < 100, y, -1)  # -1: unlabelled
    >>> model = OkapiClassifier(steps=50, random_state=0).fit(X, some)
    >>> bool(model.score(X[100:], y[100:]) > 0.9)
    True
    """

    _kind = "classification"

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of each row."""
        chosen = self.predict_proba(X).argmax(axis=1)
        classes: NDArray[Any] = self.classes_[chosen]
        return classes

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return probabilities (n, n_classes), in the order of ``classes_``."""
        logits = self._encode(X)[1]
        probabilities: NDArray[np.float64] = logits.double().softmax(1).numpy()
        return probabilities

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy on the labelled rows."""
        X, y, sample_weight = _labelled_only(X, y, self._known(y)[1], sample_weight)
        return float(super().score(X, y, sample_weight))

    def _known(self, y: Any) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        y = column_or_1d(y, warn=True)
        if y.dtype.kind == "f":
            assert_all_finite(y, allow_nan=True, input_name="y")
        known = ~pd.isna(y)
        if y.dtype.kind in "iu" and len(np.unique(y[y != -1])) > 1:
            known &= y != -1
        return y, known

    def _target(self, y: NDArray[Any], known: NDArray[np.bool_]) -> tuple[Tensor, Task]:
        values = y[known]
        if values.dtype.kind == "f" and np.any(values != np.round(values)):
            raise ValueError("Unknown label type: continuous. y holds numbers that are no classes; see OkapiRegressor")
        if values.dtype.kind == "O" and len(kinds := {type(value).__name__ for value in values}) > 1:
            raise ValueError(f"y mixes labels of several types: {', '.join(sorted(kinds))}")
        self.classes_, target = np.unique(values, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y must have at least two classes, got one class: {self.classes_[0]}")
        return torch.from_numpy(target.astype(np.int64)), Task("classification", len(self.classes_))


class OkapiRegressor(RegressorMixin, _Okapi):  # type: ignore[misc]
    """A regressor that learns from labelled rows and from unlabelled rows of other domains.

    Parameters and attributes are those of `OkapiClassifier`, but for the classes. Targets are standardised inside.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> y = X @ [1.0, 2.0, 0.0]
    >>> some = np.where(np.arange(200) < 100, y, np.nan)  # NaN: unlabelled
    >>> model = OkapiRegressor(steps=200, random_state=0).fit(X, some)
    >>> bool(model.score(X[100:], y[100:]) > 0.8)
    True
    """

    _kind = "regression"

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return numbers (n,), or (n, outputs) where y had that shape."""
        predictions: NDArray[np.float64] = self._encode(X)[1].double().numpy()
        predictions = predictions * self._target_deviation + self._target_mean
        return predictions[:, 0] if self._flat else predictions

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return R² on the labelled rows."""
        X, y, sample_weight = _labelled_only(X, y, self._known(y)[1], sample_weight)
        return float(super().score(X, y, sample_weight))

    def _known(self, y: Any) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        y = np.asarray(y)
        y = column_or_1d(y, warn=True) if y.ndim < 2 or y.shape[1] == 1 else y
        y = y.astype(np.float64)
        assert_all_finite(y, allow_nan=True, input_name="y")
        return y, ~np.isnan(y).reshape(len(y), -1).any(axis=1)

    def _target(self, y: NDArray[Any], known: NDArray[np.bool_]) -> tuple[Tensor, Task]:
        self._flat = y.ndim == 1
        values = y[known].reshape(int(known.sum()), -1)
        self._target_mean, deviation = values.mean(axis=0), values.std(axis=0)
        self._target_deviation = np.where(deviation > 0, deviation, 1.0)
        scaled = (values - self._target_mean) / self._target_deviation
        return torch.from_numpy(scaled.astype(np.float32)), Task("regression", scaled.shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _default_settings(method: Method, kind: str) -> Settings:
    """Return a method's defaults with a bank for thousands of rows, and a momentum that lags as much as the paper's."""
    if method == "okapi_plus":
        slow = MomentumSettings(start=0.99, end=1.0)  # numbers have no pseudo-labels, which want a quick one
        return OkapiPlusSettings(bank=4096, momentum=slow) if kind == "regression" else OkapiPlusSettings(bank=1024)
    if method == "okapi":
        return OkapiSettings(bank=4096, momentum=MomentumSettings(start="auto", end=1.0))
    return FixMatchSettings() if method == "fixmatch" else ERMSettings()


def _scale(X: NDArray[np.float32], scale: str | None) -> tuple[Any, Any]:
    """Return what is subtracted from rows and what they are divided by."""
    if scale is None:
        return np.float32(0), np.float32(1)
    if scale == "unit":
        root = float(np.sqrt(np.mean(X.astype(np.float64) ** 2)))
        return np.float32(0), root or 1.0
    deviation = X.std(axis=0, dtype=np.float64)
    return X.mean(axis=0, dtype=np.float64), np.where(deviation > 1e-8 * np.abs(X).max(initial=0.0), deviation, 1.0)


def _noisy(inputs: Tensor, deviation: float) -> Tensor:
    return inputs + deviation * torch.randn_like(inputs) if deviation else inputs


def _device(name: str) -> torch.device:
    return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)


def _pool_domain(labelled: NDArray[np.int64], n: int) -> Tensor:
    domain = torch.ones(n, dtype=torch.int64)
    domain[torch.from_numpy(labelled)] = 0
    return domain


def _domains(domain: ArrayLike | None, more: ArrayLike | None, n: int, n_all: int) -> Tensor | None:
    """Return the domain of every row as a number; None: labelled and unlabelled rows are the domains."""
    if domain is None:
        if more is not None:
            raise ValueError("domain_unlabelled is given without domain")
        return None
    parts = [np.asarray(domain)]
    if n_all > n:
        if more is None:
            raise ValueError("domain_unlabelled is missing: domain and X_unlabelled are given")
        parts.append(np.asarray(more))
    for name, values, wanted in zip(("domain", "domain_unlabelled"), parts, (n, n_all - n), strict=False):
        if values.shape != (wanted,):
            raise ValueError(f"{name} must have shape ({wanted},), one value for each row, got {values.shape}")
        if pd.isna(values).any():
            raise ValueError(f"{name} is missing in row {int(np.flatnonzero(pd.isna(values))[0])}")
    names, numbers = np.unique(np.concatenate([part.astype(str) for part in parts]), return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"domain must have at least two values, got only {names[0]!r}; leave it out to match pools")
    return torch.from_numpy(numbers.astype(np.int64))


def _labelled_only(X: Any, y: Any, known: NDArray[np.bool_], weight: ArrayLike | None) -> tuple[Any, Any, Any]:
    """Return the rows whose targets are known."""
    if known.all():
        return X, y, weight
    index = np.flatnonzero(known)
    rows = X.iloc[index] if isinstance(X, pd.DataFrame) else X[index]
    return rows, np.asarray(y)[index], None if weight is None else np.asarray(weight)[index]
