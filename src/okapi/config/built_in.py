"""Where the configs are that come with the package."""

from pathlib import Path

_PLACES = (
    Path(__file__).parents[1] / "configs",  # as installed
    Path(__file__).parents[3] / "configs",  # in a checkout, beside src
)


def find_config(path: Path) -> Path:
    """Return a path as it is or, where nothing is, the config of the package, or the folder of such, that it names.

    ``configs/sites/okapi.yaml`` is found from any folder, so that examples work without a checkout.
    """
    if path.exists() or path.parts[:1] != ("configs",):
        return path
    inside = [place.joinpath(*path.parts[1:]) for place in _PLACES]
    return next((found for found in inside if found.exists()), path)
