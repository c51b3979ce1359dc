import numpy as np
from PIL import Image

from okapi.data.four_sites import LOOKS, load_four_sites


def test_the_same_seed_gives_the_same_pictures():
    one, two, other = load_four_sites(), load_four_sites(0), load_four_sites(1)
    np.testing.assert_array_equal(one.images, two.images)
    np.testing.assert_array_equal(one.site, two.site)
    assert (one.site != other.site).any()


def test_sites_differ_in_look_and_in_what_they_photograph():
    sites = load_four_sites()
    assert (sites.images.min(), sites.images.max()) == (0, 1)
    assert len(sites) == 1797
    for name, look in LOOKS.items():
        here = sites.site == name
        assert here.sum() > 350
        favoured = np.isin(sites.label, look.favours)
        assert favoured[here].mean() > 1.3 * favoured[~here].mean()
        right = sites.images[here][:, :, 7].mean()
        assert abs(right - look.light - look.background) < 0.12


def test_pictures_are_written(tmp_path):
    sites = load_four_sites()
    paths = sites.write_images(tmp_path / "a" / "b")
    assert len(set(paths)) == len(sites)
    with Image.open(paths[5]) as image:
        assert image.size == (64, 64)
        middle = np.asarray(image, float).reshape(8, 8, 8, 8).mean((1, 3)) / 255
    assert np.corrcoef(middle.ravel(), sites.images[5].ravel())[0, 1] > 0.95
