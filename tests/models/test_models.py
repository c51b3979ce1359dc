import copy
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from okapi.config import MODEL_SETTINGS, CNNSettings, MLPSettings, TextSettings, VisionSettings
from okapi.models import MLP, MODELS, Network, SmallCNN, TextEncoder, VisionBackbone, build
from okapi.models.build import IMAGENET_MEAN, IMAGENET_STD
from okapi.models.vision import BACKBONES

TINY = {"layers": 2, "width": 16, "heads": 2, "feed_forward": 32, "vocabulary": 50, "longest": 12}
TOKENS = {"input_ids": torch.randint(50, (3, 7)), "attention_mask": torch.ones(3, 7, dtype=torch.int64)}
CASES = {
    "mlp": (MLPSettings(dropout=0.1), torch.randn(3, 2, 5)),
    "mlp without hidden layers": (MLPSettings(hidden=()), torch.randn(3, 4)),
    "cnn": (CNNSettings(width=4, out_features=6), torch.rand(3, 2, 8, 8)),
    "vision": (VisionSettings(backbone="resnet-18"), torch.rand(3, 8, 32, 32)),
    "text": (TextSettings(**TINY, out_features=8), TOKENS),
}


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def one(inputs):
    return inputs[0] if isinstance(inputs, Tensor) else {name: tensor[0] for name, tensor in inputs.items()}


@pytest.mark.parametrize("case", CASES)
def test_every_model_encodes_predicts_and_learns(case: str):
    settings, inputs = CASES[case]
    network = build(settings, one(inputs), SimpleNamespace(outputs=5))
    encoding, prediction = network(inputs)
    assert encoding.shape == (3, network.encoder.out_features)
    assert prediction.shape == (3, 5)
    prediction.square().sum().backward()
    without = [name for name, parameter in network.named_parameters() if parameter.grad is None]
    assert without == []
    network.eval()
    torch.testing.assert_close(network.head(network.encoder(inputs)), network(inputs).prediction)
    copied = copy.deepcopy(network)  # as the momentum encoder is made
    torch.testing.assert_close(copied(inputs).encoding, network(inputs).encoding)


def test_names_choose_settings():
    assert set(MODELS) == set(MODEL_SETTINGS) == {"mlp", "cnn", "vision", "text"}
    assert all(settings.name == name for name, settings in MODEL_SETTINGS.items())


def test_samples_are_encoded_apart_from_each_other_in_evaluation():
    for settings, inputs in CASES.values():
        network = build(settings, one(inputs), SimpleNamespace(outputs=2)).eval()
        single = {name: t[:1] for name, t in inputs.items()} if isinstance(inputs, dict) else inputs[:1]
        torch.testing.assert_close(network(single).encoding, network(inputs).encoding[:1], rtol=1e-4, atol=1e-5)


# Images


NORMALISED = [
    (CNNSettings(width=4), 3, IMAGENET_MEAN, IMAGENET_STD),
    (CNNSettings(width=4), 1, (0.0,), (1.0,)),
    (VisionSettings(backbone="resnet-18"), 3, IMAGENET_MEAN, IMAGENET_STD),
    (VisionSettings(backbone="resnet-18", mean=(0.5,) * 3, std=(0.1, 0.2, 0.3)), 3, (0.5,) * 3, (0.1, 0.2, 0.3)),
    (VisionSettings(backbone="resnet-18", std=(2.0, 4.0)), 2, (0.0, 0.0), (2.0, 4.0)),
]


@pytest.mark.parametrize(("settings", "channels", "mean", "std"), NORMALISED)
def test_networks_of_images_normalise_pixels(settings, channels: int, mean, std):
    pixels, task = torch.rand(2, channels, 32, 32), SimpleNamespace(outputs=2)
    network = build(settings, pixels[0], task).eval()
    plain = copy.deepcopy(network)
    plain.encoder.normalise = nn.Identity()
    by_hand = (pixels - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
    assert torch.equal(network(pixels).encoding, plain(by_hand).encoding)
    assert network.state_dict().keys() == plain.state_dict().keys()
    given = settings.mean is not None or settings.std is not None
    arrays = build(settings, pixels[0], task, pixels=False)  # only by what the settings say
    assert isinstance(arrays.encoder.normalise, nn.Identity) != given


def test_a_normalisation_that_does_not_fit_is_rejected():
    with pytest.raises(ValueError, match="mean must have one number for each of 1 channels, got 3"):
        build(CNNSettings(mean=(0.5,) * 3), torch.zeros(1, 8, 8), SimpleNamespace(outputs=2))
    with pytest.raises(ValueError, match=r"std must be .* more than 0 .*, got \(1.0, 0.0, 1.0\)"):
        VisionSettings(std=(1.0, 0.0, 1.0))


@pytest.mark.parametrize(
    ("name", "width", "parameters"),
    # What torchvision's documentation says, less the classifier of 1,000 classes:
    # 28,589,128 - 769,000; 11,689,512 - 513,000; 25,557,032 - 2,049,000.
    [("convnext-tiny", 768, 27_820_128), ("resnet-18", 512, 11_176_512), ("resnet-50", 2048, 23_508_032)],
)
def test_backbones_are_as_large_as_they_should_be(name: str, width: int, parameters: int):
    backbone = VisionBackbone(name)
    assert backbone.out_features == width
    assert sum(parameter.numel() for parameter in backbone.parameters()) == parameters


@pytest.mark.parametrize("name", ["convnext-tiny", "resnet-50"])
def test_backbones_take_eight_channels(name: str):
    backbone = VisionBackbone(name, channels=8)
    inputs = torch.rand(2, 8, 32, 32, requires_grad=True)
    encoding = backbone(inputs)
    assert encoding.shape == (2, backbone.out_features)
    encoding.square().sum().backward()
    assert (inputs.grad.abs().sum((0, 2, 3)) > 0).all()


@pytest.fixture
def small_backbone(monkeypatch):
    shape = {"depths": [1, 1, 1, 1], "hidden_sizes": [4, 8, 8, 16], "layer_type": "basic", "embedding_size": 4}
    monkeypatch.setitem(BACKBONES, "small", ("resnet", shape))
    return "small"


def test_weights_are_read_from_a_folder(tmp_path: Path, small_backbone: str):
    saved = VisionBackbone(small_backbone).eval()
    saved.backbone.save_pretrained(tmp_path)
    pictures = torch.rand(2, 3, 32, 32)
    read = VisionBackbone(small_backbone, pretrained=str(tmp_path)).eval()
    torch.testing.assert_close(read(pictures), saved(pictures))
    nine = VisionBackbone(small_backbone, channels=9, pretrained=str(tmp_path)).eval()
    grey = pictures.mean(1, keepdim=True)  # for which the channels of the first layer only add up
    torch.testing.assert_close(nine(grey.expand(2, 9, 32, 32)), saved(grey.expand(2, 3, 32, 32)), rtol=1e-4, atol=1e-5)


def test_weights_of_another_network_are_refused(tmp_path: Path, small_backbone: str):
    VisionBackbone(small_backbone).backbone.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"pretrained must hold a resnet-18, .* holds another network"):
        VisionBackbone("resnet-18", pretrained=str(tmp_path))
    with pytest.raises(ValueError, match=r"none' is no folder, and on the hub"):
        VisionBackbone("resnet-18", pretrained=tmp_path / "none")
    with pytest.raises(
        ValueError, match=r"one of convnext-tiny, .*, efficientnet-lite0, a folder or a name .*, got 'vgg'"
    ):
        VisionBackbone("vgg")


# Text


def test_tokens_that_are_masked_do_not_count():
    encoder = TextEncoder(TextSettings(**TINY, out_features=8)).eval()
    mask = torch.tensor([[1, 1, 1, 1, 0, 0, 0]]).expand(3, 7)
    changed = TOKENS["input_ids"].clone()
    changed[:, 4:] = 1
    before, after = (encoder({"input_ids": ids, "attention_mask": mask}) for ids in (TOKENS["input_ids"], changed))
    torch.testing.assert_close(before, after)
    assert not torch.allclose(before, encoder(TOKENS))


def test_text_weights_are_read_from_a_folder(tmp_path: Path):
    saved = TextEncoder(TextSettings(**TINY, out_features=8))
    saved.transformer.save_pretrained(tmp_path)
    read = TextEncoder(TextSettings(pretrained=str(tmp_path), out_features=8))
    for name, tensor in saved.transformer.state_dict().items():
        assert torch.equal(tensor, read.transformer.state_dict()[name])


# What is refused


def test_samples_and_settings_that_do_not_fit():
    task = SimpleNamespace(outputs=2)
    for settings, sample, words in [
        (MLPSettings(), one(TOKENS), "'mlp' takes tensors, got samples that are dict"),
        (CNNSettings(), torch.zeros(4), r"'cnn' takes images .*, got samples of shape \(4,\)"),
        (VisionSettings(), torch.zeros(8, 8), "'vision' takes images"),
        (TextSettings(), torch.zeros(4), "'text' takes mappings with input_ids and attention_mask"),
        (TextSettings(width=10, heads=3), one(TOKENS), "width must be a multiple of heads, got 10 and 3"),
    ]:
        with pytest.raises((ValueError, TypeError), match=words):
            build(settings, sample, task)
    with pytest.raises(ValueError, match="at least 1"):
        MLP(0)
    with pytest.raises(ValueError, match="at least 1"):
        SmallCNN(channels=0)
    with pytest.raises(TypeError, match="Sequential has none"):
        Network(nn.Sequential(), nn.Linear(1, 1))


def normalising():
    encoder = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    encoder.out_features = 3
    return Network(encoder, nn.Linear(3, 2)).double()


def test_inputs_apart_are_two_batches_to_batch_normalisation():
    network, x = normalising(), torch.randn(10, 4, dtype=torch.float64)
    network_of_parts = copy.deepcopy(network)
    encoding, prediction = network(x, apart=4)
    parts = [network_of_parts(part) for part in (x[:4], x[4:])]
    torch.testing.assert_close(encoding, torch.cat([part.encoding for part in parts]))
    torch.testing.assert_close(prediction, torch.cat([part.prediction for part in parts]))
    torch.testing.assert_close(network.state_dict(), network_of_parts.state_dict())  # with the running statistics
    alone = network.encoder[0](x[:4])
    expected = (alone - alone.mean(0)) / (alone.var(0, correction=0) + 1e-5).sqrt()
    torch.testing.assert_close(encoding[:4], expected)
    assert not torch.allclose(network(x).encoding[:4], expected)


def test_inputs_apart_make_no_difference_without_batch_statistics():
    x, network = torch.randn(10, 4, dtype=torch.float64), normalising()
    assert network.has_batch_norm
    assert not network.eval().has_batch_norm
    torch.testing.assert_close(network(x, apart=4).encoding, network(x).encoding)


def test_named_inputs_can_be_apart():
    class Encoder(nn.Module):
        out_features = 3

        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(3)

        def forward(self, inputs):
            return self.norm(inputs["a"] + inputs["b"])

    network, a, b = Network(Encoder(), nn.Linear(3, 2)), torch.randn(6, 3), torch.randn(6, 3)
    encoding = network({"a": a, "b": b}, apart=2).encoding
    torch.testing.assert_close(encoding[2:], network.encoder({"a": a[2:], "b": b[2:]}))
