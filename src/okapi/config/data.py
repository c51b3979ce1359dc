"""Settings of the data sets: small dataclasses, checked when they are made."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias, get_args

from annotated_types import Interval

from okapi.config.values import Count, NotNegative, Seed, Settings, Share, ShareBelowOne

Pixels: TypeAlias = Annotated[int, Interval(ge=1, le=16_384)]
Kind: TypeAlias = Literal["classification", "regression", "multilabel"]
View: TypeAlias = Literal["none", "weak", "strong"]
Fit: TypeAlias = Literal["squash", "crop"]
Colour: TypeAlias = Literal["rgb", "grey"]
Verify: TypeAlias = Literal["nothing", "exists", "headers", "pixels"]
Unreadable: TypeAlias = Literal["error", "skip"]
Fold: TypeAlias = Literal["A", "B", "C", "D", "E"]
Pool: TypeAlias = Literal["ood_val", "train_unlabeled", "val_unlabeled", "test_unlabeled", "none"]
Missing: TypeAlias = Literal["error", "drop", "impute"]
Scale: TypeAlias = Literal["standard", "none"]
Names: TypeAlias = str | tuple[str, ...]
_CHANNELS = {"rgb": 3, "grey": 1}


@dataclass(frozen=True, kw_only=True)
class SplitSettings(Settings):
    """How samples are split by their domains, where no column says it.

    Parameters
    ----------
    held_out : str or tuple of str
        Domain or domains to predict at: a part of each is unlabelled, the rest is ood_test.
    validation : str or tuple of str
        Domain or domains that are ood_val. All that is neither held out nor validation is the source.
    unlabelled : float
        Share of a held-out domain that is unlabelled.
    id_val, id_test : float
        Shares of the source that are id_val and id_test; the rest is train.
    split_seed : int
        By which shares are drawn.
    fully_labelled : bool
        Whether unlabelled samples join train with their labels: what could be reached if somebody labelled them.
    """

    held_out: Names = ()
    validation: Names = ()
    unlabelled: Share = 0.5
    id_val: Share = 0.2
    id_test: Share = 0.0
    split_seed: Seed = 0
    fully_labelled: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.id_val + self.id_test >= 1:
            both = f"{self.id_val} and {self.id_test}"
            raise ValueError(f"id_val and id_test must leave something to train on, got {both}")


def names_of(value: str | Sequence[str]) -> tuple[str, ...]:
    """Return one name or several as several."""
    return (value,) if isinstance(value, str) else tuple(value)


@dataclass(frozen=True, kw_only=True)
class ViewSettings(Settings):
    """Which views of images are trained on.

    Parameters
    ----------
    labelled_view, unlabelled_view : {"none", "weak", "strong"}
        How labelled and how unlabelled images are distorted. FixMatch's second view is the strong one in any case.
    """

    labelled_view: View = "weak"
    unlabelled_view: View = "weak"


@dataclass(frozen=True, kw_only=True)
class ImageSettings(ViewSettings):
    """How images become inputs, pixels in [0, 1]; other keys are those of ViewSettings.

    Images are turned as their EXIF data says. What is transparent is white, a palette is looked up, 16-bit greys are
    divided by 65,535 and all else by 255.

    Parameters
    ----------
    size : int
        Height and width of an input, in pixels.
    fit : {"squash", "crop"}
        What becomes of an image that is not square: "squash" scales both sides to ``size``; "crop" scales the shorter
        one and cuts out the middle.
    colour : {"rgb", "grey"}
        Three channels or one, whatever the file has.
    verify : {"nothing", "exists", "headers", "pixels"}
        What is checked of every file at the start: nothing; that it is there; that it begins as an image of a sane size
        does; or that all of it can be decoded, which takes as long as a pass over the data.
    unreadable : {"error", "skip"}
        What becomes of images that the check finds missing or broken: "error" names them and stops; "skip" leaves them
        out of the data set and says how many of which split. It decodes all images at the start, once if there is a
        cache.
    cache : str, optional
        Folder for a file of all images at ``size``, which is built once, decoding all, and then mapped into memory.
    """

    size: Pixels = 224
    fit: Fit = "squash"
    colour: Colour = "rgb"
    verify: Verify = "headers"
    unreadable: Unreadable = "error"
    cache: str | None = None

    @property
    def channels(self) -> int:
        """How many channels an input has."""
        return _CHANNELS[self.colour]


@dataclass(frozen=True, kw_only=True)
class TokenSettings(Settings):
    """How texts become inputs.

    Parameters
    ----------
    tokenizer : str
        A folder that ``save_pretrained`` of a transformers tokeniser wrote, or the name of one that transformers has or
        can fetch. None is loaded where it is empty: texts can then be read but not learnt from.
    tokens : int
        How many tokens an input has: a longer text is cut, a shorter one padded.
    """

    tokenizer: str = "distilbert-base-uncased"
    tokens: Count = 300


@dataclass(frozen=True, kw_only=True)
class SitesSettings(Settings):
    """The built-in data set: learn from the labels of 12 sites, and predict at 24 that were never seen before.

    A stand-in for camera traps: scikit-learn's digits, 9,000 images of them. 48 sites more are unlabelled, 12 are for
    validation. What a site sees, its light, contrast, blur, how near things are and which are frequent there is its
    own. Each digit is used in one split only, so that no stroke of the pen is learnt and asked for.

    The default difficulty was fixed by the numbers of ERM alone, on the worlds of seeds 1 and 2, as the least of 0.75,
    1 and 1.25 at which ERM loses 15 points from id_val to ood_val (``benchmarks/sites.py``).

    Parameters
    ----------
    seed : int
        Of the world: sites, images and splits.
    difficulty : float, 0 or more
        How far sites are apart in all of this; at 0 they are alike.
    fully_labelled : bool
        Whether the unlabelled images join train with their labels: what could be reached if somebody labelled them.
    """

    name: Literal["sites"] = "sites"
    seed: Seed = 0
    difficulty: NotNegative = 1.0
    fully_labelled: bool = False


@dataclass(frozen=True, kw_only=True)
class LabelSettings(SplitSettings):
    """What is said of samples besides their inputs, in columns or arrays; other keys are those of SplitSettings.

    Parameters
    ----------
    target : str or tuple of str
        Column of classes, by number or by name, or of numbers; several columns for several numbers, or for labels of 0
        and 1. It may be empty, or -1 for a class, where a sample is unlabelled.
    domain : str or tuple of str
        Column that says where a sample comes from; or several, each of 0 and 1 and named after a domain, for samples of
        several domains.
    split : str, optional
        Column of splits: train, unlabelled, id_val, ood_val, id_test, ood_test or unlabelled_test. Without it they come
        of held_out, validation and the shares.
    id : str, optional
        Column of names that no two samples share.
    group : str or tuple of str
        Column or columns: samples that agree in them are not torn apart, such as images of one place.
    task : {"classification", "regression", "multilabel"}
        What is to be predicted: one class of several, numbers, or any of several labels.
    train_noise, strong_noise : float
        Standard deviation of the noise that is added to all features in training and to their strong view.
    """

    target: Names = "target"
    domain: Names = "domain"
    split: str | None = None
    id: str | None = None
    group: Names = ()
    task: Kind = "classification"
    train_noise: NotNegative = 0.0
    strong_noise: NotNegative = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.split is not None and (self.held_out or self.validation):
            raise ValueError("split names a column, so held_out and validation must be empty; or set it to null")
        if not names_of(self.target) or not names_of(self.domain):
            raise ValueError(f"{'domain' if self.target else 'target'} must be given, got none")
        if self.split is None and len(names_of(self.domain)) > 1:
            raise ValueError("split must be given where samples have several domains, got none")
        if self.task == "classification" and len(names_of(self.target)) > 1:
            raise ValueError(f"target must be one column for classification, got {len(names_of(self.target))}")


@dataclass(frozen=True, kw_only=True)
class ArraysSettings(LabelSettings):
    """Arrays or embeddings of your own, in one file that ``numpy.savez`` wrote; other keys are those of LabelSettings.

    An array (n,) is a column; one of shape (n, D) is as many, whose names are those of the array and a number.

    Parameters
    ----------
    path : str
        The npz file.
    inputs : str
        Name of the array of inputs, (n, ...), numbers; they are taken as float32.
    target, domain : str or tuple of str
        Names of arrays.
    domains : str or tuple of str
        Which domains take part; by default all.
    split : str, or null
        Name of the splits, as of LabelSettings.
    scale : {"unit"}, or null
        "unit": all inputs are divided by one number, the root mean square of those of train. Features are never scaled
        one by one: that blows up the ones that say least.
    centre : {"domain"}, or null
        "domain": of all inputs the mean of their domain is taken away, over its samples in train and unlabelled; of a
        domain that has none there, the mean of all of these. What a domain's samples have in common is then gone, such
        as the style of drawings from their features. Not for numbers that differ between domains as a whole.
    train_warp, strong_warp : float
        How far images (channels, H, W) are distorted, at most: by 0.2 they grow or shrink by that share, move by half
        of it along each side and turn and lean by half of it in radians.
    """

    name: Literal["arrays"] = "arrays"
    path: str
    inputs: str = "x"
    target: Names = "y"
    domains: Names = ()
    split: str | None = "split"
    scale: Literal["unit"] | None = None
    centre: Literal["domain"] | None = None
    train_warp: ShareBelowOne = 0.0
    strong_warp: ShareBelowOne = 0.0


@dataclass(frozen=True, kw_only=True)
class ImageFolderSettings(ImageSettings, SplitSettings):
    """Images in folders by domain and class; other keys are those of ImageSettings and SplitSettings.

    Parameters
    ----------
    root : str
        The folder of the domains.
    domains : str or tuple of str
        Which of its folders are domains; by default all.
    """

    name: Literal["image_folder"] = "image_folder"
    root: str
    domains: Names = ()


@dataclass(frozen=True, kw_only=True)
class ColumnSettings(ImageSettings, TokenSettings, LabelSettings):
    """Which column is what; other keys are those of ImageSettings, TokenSettings and LabelSettings.

    Parameters
    ----------
    image : str, optional
        Column of images: their paths.
    text : str, optional
        Column of texts.
    features : str or tuple of str
        Columns of numbers, booleans, categories or lists of numbers: names, patterns such as ``price_*`` and
        ``encoding_{0..63}``, or ``all``: those without another role. Categories become columns of 0 and 1. One of
        image, text and features must be given.
    missing : {"error", "drop", "impute"}
        What becomes of samples that miss a feature: an error names the first; "drop" leaves them out; "impute" fills in
        the median or the most frequent category of train, and adds a feature that says so.
    scale : {"standard", "none"}
        "standard": a column of numbers is standardised by its mean and deviation in train; lists and booleans are not.
    """

    image: str | None = None
    text: str | None = None
    features: Names = ()
    missing: Missing = "error"
    scale: Scale = "standard"

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [name for name in ("image", "text", "features") if getattr(self, name)]
        if len(given) != 1:
            raise ValueError(f"image, text or features must be given, one of them, got {' and '.join(given) or 'none'}")
        if not self.features and (self.train_noise or self.strong_noise):
            raise ValueError("train_noise and strong_noise are of features, got them for other inputs")


@dataclass(frozen=True, kw_only=True)
class TableSettings(ColumnSettings):
    """A table: a file with a row for each sample; other keys are those of ColumnSettings.

    Parameters
    ----------
    path : str
        The file: ``.csv`` or ``.tsv``, plain or ``.gz``; ``.parquet``, ``.feather``, ``.xlsx``; or ``.npz``, an array
        for each column.
    separator : str, optional
        Of a CSV file; by default the one of ``, ; tab |`` on which its first rows agree.
    root : str, optional
        Folder from which paths of images are taken and out of which none may lead; by default the table's.
    """

    name: Literal["table"] = "table"
    path: str
    separator: str | None = None
    root: str | None = None


@dataclass(frozen=True, kw_only=True)
class IWildCamSettings(ImageSettings):
    """IWildCam of WILDS 2.0; other keys are those of ImageSettings.

    Parameters
    ----------
    root : str
        The folder that holds ``iwildcam_v2.0`` and ``iwildcam_unlabeled_v1.0``.
    unlabelled : bool
        Whether the unlabelled images are read, which are of other camera traps.
    fully_labelled : bool
        Whether those of them whose species is known, and one of the 182, join train with it.
    size : int
        Height and width of an input, in pixels.
    verify : {"nothing", "exists", "headers", "pixels"}
        What is checked of every file at the start; to open a million takes a while.
    """

    name: Literal["iwildcam"] = "iwildcam"
    root: str
    unlabelled: bool = True
    fully_labelled: bool = False
    size: Pixels = 448
    verify: Verify = "exists"


@dataclass(frozen=True, kw_only=True)
class PovertySettings(ViewSettings):
    """PovertyMap of WILDS 2.0.

    Parameters
    ----------
    root : str
        The folder that holds ``poverty_v1.1`` and ``poverty_unlabeled_v1.0``.
    fold : {"A", "B", "C", "D", "E"}
        Which countries are ood_val and ood_test.
    unlabelled : {"ood_val", "train_unlabeled", "val_unlabeled", "test_unlabeled", "none"}
        What is unlabelled: the images of ood_val once more, without their wealth, as in the paper; or WILDS'
        unlabelled images of the countries of train, of ood_val or of ood_test; or nothing.
    nightlights : bool
        Whether the last channel, lights at night, is there; else it is 0.
    verify : {"nothing", "exists", "headers", "pixels"}
        What is checked of every file at the start: nothing; that it is there; that it holds an image of 8 x 224 x 224;
        or that all of it can be read.
    unreadable : {"error", "skip"}
        What becomes of images that are missing or broken: "error" names them and stops; "skip" leaves them out of the
        data set, says how many of which split, and reads all images at the start, once if there is a cache.
    cache : str, optional
        Folder for a file of all images, unpacked, which is built once and then mapped into memory: 1.6 MB an image.
    labelled_view, unlabelled_view : {"none", "weak", "strong"}
        How labelled and how unlabelled images are distorted. FixMatch's second view is the strong one in any case.
    """

    name: Literal["poverty"] = "poverty"
    root: str
    fold: Fold = "A"
    unlabelled: Pool = "ood_val"
    nightlights: bool = True
    verify: Verify = "exists"
    unreadable: Unreadable = "error"
    cache: str | None = None
    labelled_view: View = "none"
    unlabelled_view: View = "none"


@dataclass(frozen=True, kw_only=True)
class CivilCommentsSettings(TokenSettings):
    """CivilComments of WILDS 2.0; other keys are those of TokenSettings.

    Parameters
    ----------
    root : str
        The folder that holds ``civilcomments_v1.0`` and ``civilcomments_unlabeled_v1.0``.
    unlabelled : bool
        Whether the unlabelled comments are read. What identities they mention nobody has said.
    fully_labelled : bool
        Whether they join train with their labels, which are known.
    """

    name: Literal["civilcomments"] = "civilcomments"
    root: str
    unlabelled: bool = True
    fully_labelled: bool = False


DataSettings: TypeAlias = (
    SitesSettings
    | ArraysSettings
    | ImageFolderSettings
    | TableSettings
    | IWildCamSettings
    | PovertySettings
    | CivilCommentsSettings
)

DATA_SETTINGS: dict[str, type] = {kind.name: kind for kind in get_args(DataSettings)}
"""What settings the section ``data`` has, by its ``name``."""
