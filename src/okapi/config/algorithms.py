"""Settings of the algorithms: small dataclasses, passed whole."""

from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias, get_args

from annotated_types import Interval

from okapi.config.values import Count, NotNegative, Positive, PositiveShare, Settings, Share

DomainNumber: TypeAlias = Annotated[int, Interval(ge=0, le=1_000_000)]
Bank: TypeAlias = Annotated[int, Interval(ge=1, le=100_000_000)]
Domain: TypeAlias = Literal["binary", "label"]


@dataclass(frozen=True, kw_only=True)
class MatchingSettings(Settings):
    """How samples are matched across domains; the defaults are those of the paper's PovertyMap experiment.

    Parameters
    ----------
    k : int
        Keys per query.
    fixed_caliper : float in [0, 1], not 0.5, or null
        Leave out samples whose propensity is not inside (1 - t, t).
    std_caliper : float > 0, or null
        Greatest difference of propensities in a pair, in standard deviations.
    caliper_scale : {"probability", "logit"}
        Scale on which the std-caliper compares propensities.
    direction : (int, int), or null
        Match only queries of the first domain with keys of the second; if the pools are the domains, 0 is labelled and
        1 unlabelled.
    """

    k: Count = 5
    fixed_caliper: Share | None = 0.9
    std_caliper: Positive | None = 0.2
    caliper_scale: Literal["probability", "logit"] = "probability"
    direction: tuple[DomainNumber, DomainNumber] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fixed_caliper == 0.5:
            raise ValueError("fixed_caliper must not be 0.5, which leaves out every sample")
        if self.direction is not None and self.direction[0] == self.direction[1]:
            raise ValueError(f"direction must name two different domains, got {self.direction!r}")

    @property
    def needs_propensity(self) -> bool:
        """Whether a caliper compares propensities."""
        return self.fixed_caliper is not None or self.std_caliper is not None


@dataclass(frozen=True, kw_only=True)
class PrognosticMatchingSettings(MatchingSettings):
    """How Okapi+ matches: centred encodings inside a prognostic caliper, without the paper's calipers.

    Parameters
    ----------
    fixed_caliper, std_caliper : float, or null
        As in `MatchingSettings`; off by default.
    centre : bool
        Whether encodings are centred by domain mean before they are compared.
    prognostic_caliper : float >= 0, "auto", or null
        The prognostic caliper: greatest distance of the outcomes in a pair, labels where they are known and the
        momentum model's predictions elsewhere. In classification and multilabel the Euclidean distance of
        probabilities; in regression in standard deviations. Automatic: a third of the standard deviation of the
        outcomes, by which the two samples of a pair have to be of one class, predicted with about 0.8 or more.
    class_prior : float in [0, 1], or null
        Classification only. Predictions are aligned with a class prior, the geometric mean of the class frequencies of
        the labels (0) and of the sizes of the clusters that the unlabelled encodings form (1). Null: not aligned.
    """

    fixed_caliper: Share | None = None
    std_caliper: Positive | None = None
    centre: bool = True
    prognostic_caliper: NotNegative | Literal["auto"] | None = "auto"
    class_prior: Share | None = 0.5


@dataclass(frozen=True, kw_only=True)
class MomentumSettings(Settings):
    """Zeta of the momentum encoder, linear from start to end.

    Parameters
    ----------
    start : float in [0, 1], or "auto"
        Automatic: 1 - 100 / steps, at least 0: the momentum encoder then lags by a hundredth of the training whatever
        its length, about as much as in the paper.
    end : float in [0, 1], or null
        Null: as at the start.
    """

    start: Share | Literal["auto"] = "auto"
    end: Share | None = None


@dataclass(frozen=True, kw_only=True)
class ScorerSettings(Settings):
    """The propensity scorer. It is there only if a caliper compares propensities.

    Parameters
    ----------
    temperature : float > 0
        Divides the logits of the propensities.
    learning_rate : float > 0, or null
        Null: the encoder's.
    """

    temperature: Positive = 1.0
    learning_rate: Positive | None = None


@dataclass(frozen=True, kw_only=True)
class PseudoLabelSettings(Settings):
    """Pseudo-labels of Okapi+: confident aligned predictions supervise strong views. Not used in regression.

    Parameters
    ----------
    weight : float >= 0
        Of the pseudo-label loss; it rises with that of the consistency. 0: none.
    confidence : float in [0, 1]
        Least probability of a class or label that becomes a pseudo-label.
    error_gate : float in (0, 1]
        Classification only. Share of the labels that the momentum model may predict wrong. While it errs more often,
        the weights of consistency and pseudo-labels are multiplied by ``(error_gate / error)^2``. 1: no gate.
    """

    weight: NotNegative = 1.0
    confidence: Share = 0.8
    error_gate: PositiveShare = 0.1


@dataclass(frozen=True, kw_only=True)
class OkapiSettings(Settings):
    """The paper's method; the defaults are its PovertyMap experiment, which `PAPER` pins.

    Parameters
    ----------
    matching : MatchingSettings
    scorer : ScorerSettings
    momentum : MomentumSettings
    domain : {"binary", "label"}
        What a sample's domain is: its pool, labelled or unlabelled, or its domain label.
    queries : {"momentum", "online"}
        Which encoder's encodings look for matches.
    bank : int
        Number of past samples kept as keys.
    weight : float
        Lambda, of the consistency in the loss.
    warm_up : float in [0, 1]
        Share of the training over which the weight rises from 0.
    batch_norm : {"by_pool", "joint"}
        Whether layers of batch normalisation take the labelled and the unlabelled samples of a step for two batches, as
        in the paper, or for one.
    """

    name: Literal["okapi"] = "okapi"
    matching: MatchingSettings = field(default_factory=MatchingSettings)
    scorer: ScorerSettings = field(default_factory=ScorerSettings)
    momentum: MomentumSettings = field(default_factory=lambda: MomentumSettings(start=0.996, end=1.0))
    domain: Domain = "binary"
    queries: Literal["momentum", "online"] = "momentum"
    bank: Bank = 65_536
    weight: NotNegative = 1.0
    warm_up: Share = 0.1
    batch_norm: Literal["by_pool", "joint"] = "by_pool"


@dataclass(frozen=True, kw_only=True)
class OkapiPlusSettings(Settings):
    """Okapi+: centred matching, a prognostic caliper, and pseudo-labels with distribution alignment.

    Parameters
    ----------
    matching : PrognosticMatchingSettings
    pseudo_labels : PseudoLabelSettings
    momentum : MomentumSettings
    scorer : ScorerSettings
        Of use with a fixed or a std-caliper only.
    domain : {"binary", "label"}
        What a sample's domain is: its pool, labelled or unlabelled, or its domain label.
    bank : int
        Number of past samples kept as keys.
    weight : float
        Lambda, of the consistency in the loss.
    warm_up : float in [0, 1]
        Share of the training over which the weights rise from 0.
    """

    name: Literal["okapi_plus"] = "okapi_plus"
    matching: PrognosticMatchingSettings = field(default_factory=PrognosticMatchingSettings)
    pseudo_labels: PseudoLabelSettings = field(default_factory=PseudoLabelSettings)
    momentum: MomentumSettings = field(default_factory=MomentumSettings)
    scorer: ScorerSettings = field(default_factory=ScorerSettings)
    domain: Domain = "binary"
    bank: Bank = 65_536
    weight: NotNegative = 2.0
    warm_up: Share = 0.1


@dataclass(frozen=True, kw_only=True)
class ERMSettings(Settings):
    """Empirical risk minimisation has nothing to set."""

    name: Literal["erm"] = "erm"


@dataclass(frozen=True, kw_only=True)
class FixMatchSettings(Settings):
    """FixMatch (Sohn et al. 2020).

    Parameters
    ----------
    threshold : float in [0, 1]
        Least confidence of a prediction that becomes a pseudo-label; of no effect in regression.
    weight : float
        Of the unsupervised loss.
    """

    name: Literal["fixmatch"] = "fixmatch"
    threshold: Share = 0.95
    weight: NotNegative = 1.0


@dataclass(frozen=True, kw_only=True)
class CORALSettings(Settings):
    """Deep CORAL (Sun and Saenko 2016) between all domains, labelled and unlabelled.

    Parameters
    ----------
    weight : float
        Of the penalty.
    """

    name: Literal["coral"] = "coral"
    weight: NotNegative = 1.0


@dataclass(frozen=True, kw_only=True)
class DANNSettings(Settings):
    """Domain-adversarial training (Ganin et al. 2016) between all domains, labelled and unlabelled.

    Parameters
    ----------
    weight : float
        Of the discriminator's loss.
    """

    name: Literal["dann"] = "dann"
    weight: NotNegative = 1.0


@dataclass(frozen=True, kw_only=True)
class OfflineOkapiSettings(Settings):
    """Offline Okapi; the defaults are those of the paper's PovertyMap experiment.

    Parameters
    ----------
    erm_run : str, or null
        Run directory of the trained ERM model whose encodings are matched.
    matching : MatchingSettings
        ``k`` is 1 and there is no direction.
    temperature : float > 0
        Divides the logits of the propensities, which are those of a logistic regression.
    domain : {"binary", "label"}
        What a sample's domain is: its pool, labelled or unlabelled, or its domain label.
    weight : float
        Of the consistency in the loss.
    warm_up : float in [0, 1]
        Share of the training over which the weight rises from 0.
    """

    name: Literal["offline_okapi"] = "offline_okapi"
    erm_run: str | None = None
    matching: MatchingSettings = field(default_factory=lambda: MatchingSettings(k=1, std_caliper=0.6))
    temperature: Positive = 0.7
    domain: Domain = "binary"
    weight: NotNegative = 1.0
    warm_up: Share = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.matching.k != 1 or self.matching.direction is not None:
            raise ValueError(
                "matching must have k = 1 and no direction: a sample has one match, "
                f"got k = {self.matching.k}, direction = {self.matching.direction}"
            )


AlgorithmSettings: TypeAlias = (
    ERMSettings
    | FixMatchSettings
    | CORALSettings
    | DANNSettings
    | OkapiSettings
    | OkapiPlusSettings
    | OfflineOkapiSettings
)

ALGORITHM_SETTINGS: dict[str, type] = {kind.name: kind for kind in get_args(AlgorithmSettings)}
"""What settings the section ``algorithm`` has, by its ``name``."""


PAPER = OkapiSettings(
    matching=MatchingSettings(k=5, fixed_caliper=0.9, std_caliper=0.2, caliper_scale="probability", direction=None),
    scorer=ScorerSettings(temperature=1.0, learning_rate=None),
    momentum=MomentumSettings(start=0.996, end=1.0),
    domain="binary",
    queries="momentum",
    bank=65_536,
    weight=1.0,
    warm_up=0.1,
    batch_norm="by_pool",
)
"""The paper's PovertyMap experiment, field by field."""
