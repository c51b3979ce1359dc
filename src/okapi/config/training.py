"""The settings of the loop; imports nothing heavy, so that the command line can print them at once."""

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from annotated_types import Interval

from okapi.config.values import Count, Few, NotNegative, Positive, Settings, ShareBelowOne

Batch: TypeAlias = Annotated[int, Interval(ge=1, le=1_000_000)]
Workers: TypeAlias = Annotated[int, Interval(ge=0, le=1_000)]

Precision: TypeAlias = Literal["fp32", "bf16", "fp16"]
Tracker: TypeAlias = Literal["tensorboard", "wandb"]
SelectorName: TypeAlias = Literal[
    "id_val",
    "ood_val",
    "last",
    "oracle",
    "entropy",
    "infomax",
    "corrected_confidence",
    "thresholded_confidence",
    "ensemble",
    "match_quality",
]
Sampling: TypeAlias = Literal["uniform", "class_balanced", "class_balanced_in_expectation", "domain_balanced"]


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(Settings):
    """How long, how fast and on what a model is trained, and which weights are kept.

    Parameters
    ----------
    steps : int
        Optimiser steps of the whole run.
    start_from : str, optional
        Directory of a finished run whose selected weights, of encoder and head, this run starts from; null: those of
        the section model.
    labelled_batch : int
        Labelled samples of a batch, of all processes together. Where there are fewer, some come more than once.
    unlabelled_batch : int
        Unlabelled samples of a batch, of all processes together; not used by erm.
    sampling : {"uniform", "class_balanced", "class_balanced_in_expectation", "domain_balanced"}
        How labelled samples are drawn: each once in every pass; as many of each class, or domain, in every batch; or
        classes as frequent on average only.
    unlabelled_sampling : {"uniform", "domain_balanced"}
        The same of unlabelled samples, whose classes are not known.
    accumulate : int
        Batches whose gradients are added up for one optimiser step.
    learning_rate : float
        Of AdamW, after the warm-up. The propensity scorer of Okapi may have its own.
    final_learning_rate : float
        What the learning rate falls to along half a cosine wave by the last step.
    warm_up : float
        Share of the steps over which the learning rate rises from 0.
    weight_decay : float
        Of AdamW.
    clip : float, optional
        Largest norm of the gradient of all trained weights together; null: as it comes.
    precision : {"fp32", "bf16", "fp16"}
        Of the network's arithmetic; weights stay fp32. fp16 needs a GPU.
    compile : str, optional
        Backend of torch.compile for the network, such as inductor; null: not compiled.
    validate_every : int
        Steps between validations; the last step is validated too.
    checkpoint_every : int
        Steps between checkpoints; the last step has one too.
    log_every : int
        Steps between lines of metrics.csv, each a mean over the steps since the line before.
    selector : {"id_val", "ood_val", "last", "oracle", "entropy", "infomax", "corrected_confidence", ...}, optional
        Which weights become model.safetensors: the best on a validation split, id_val or ood_val, whose samples it
        needs; the last; or the best by a score of unlabelled samples, for which nobody has to label any: entropy,
        infomax, corrected_confidence, thresholded_confidence, ensemble or match_quality. oracle: the best on ood_test.
        null: ood_val where it has samples, else id_val, else last.
    metric : str, optional
        What "best" on a split means: accuracy, macro_f1, balanced_accuracy, ece, log_loss, of two classes auroc,
        sensitivity or specificity, in regression pearson_r, mse or r2; also with _domain_mean, _domain_worst,
        _group_mean or _group_worst after it. null: the task's main metric, accuracy, pearson_r or (of labels) macro_f1.
    selection_samples : int
        Samples that selectors without labels look at, of unlabelled and of id_val each; drawn once, by the seed.
    consent_to_oracle : bool
        That the selector oracle may open ood_test at every validation.
    patience : int, optional
        Validations in a row without a new best after which training stops; null: never.
    evaluation_batch : int
        Samples that are evaluated at a time, of each process.
    workers : int
        Processes that load data, for each training process; 0: none.
    accelerator : {"auto", "cpu", "gpu"}
        What to train on; auto: a GPU where there is one.
    devices : int
        Training processes of each machine. Under torchrun or Slurm: as many as were started.
    nodes : int
        Machines. Under torchrun or Slurm: as many as were started.
    trackers : list of {"tensorboard", "wandb"}
        Where metrics go beside metrics.csv.
    wandb_project : str
        Project at Weights & Biases.
    wandb_mode : {"offline", "online"}
        Whether Weights & Biases writes to the run directory only, or sends at once.
    """

    steps: Count
    start_from: str | None = None
    labelled_batch: Batch = 32
    unlabelled_batch: Batch = 32
    sampling: Sampling = "uniform"
    unlabelled_sampling: Literal["uniform", "domain_balanced"] = "uniform"
    accumulate: Few = 1
    learning_rate: Positive = 1e-4
    final_learning_rate: NotNegative = 5e-7
    warm_up: ShareBelowOne = 0.0
    weight_decay: NotNegative = 0.0
    clip: Positive | None = None
    precision: Precision = "fp32"
    compile: str | None = None
    validate_every: Count = 1000
    checkpoint_every: Count = 1000
    log_every: Count = 50
    selector: SelectorName | None = None
    metric: str | None = None
    selection_samples: Count = 2048
    consent_to_oracle: bool = False
    patience: Count | None = None
    evaluation_batch: Batch = 256
    workers: Workers = 0
    accelerator: Literal["auto", "cpu", "gpu"] = "auto"
    devices: Few = 1
    nodes: Few = 1
    trackers: tuple[Tracker, ...] = ()
    wandb_project: str = "okapi"
    wandb_mode: Literal["offline", "online"] = "offline"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.final_learning_rate > self.learning_rate:
            raise ValueError(
                f"final_learning_rate must be at most learning_rate ({self.learning_rate}), "
                f"got {self.final_learning_rate}"
            )
