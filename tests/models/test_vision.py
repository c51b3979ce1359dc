"""Any vision backbone of transformers, by folder; what names of the hub do is in tests/test_hub.py."""

import copy
from pathlib import Path

import pytest
import torch
from tests.models.tiny import TEXT, VISION, save
from torch import nn
from transformers import AutoConfig, AutoModel, ViTForImageClassification

from okapi.config import VisionSettings
from okapi.models import VisionBackbone, build, untrained
from okapi.models.vision import BACKBONES, WEIGHTS


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("vision")
    return {family: save(folder / family, family, shape) for family, shape in VISION.items()}


@pytest.mark.parametrize("channels", [1, 3, 8])
@pytest.mark.parametrize("family", VISION)
def test_any_backbone_takes_pictures_of_any_size_and_channels_and_learns(family, channels, folders):
    backbone = VisionBackbone(folders[family], channels, pretrained=folders[family])
    pictures = torch.rand(2, channels, 48, 48, requires_grad=True)
    encoding = backbone(pictures)
    assert encoding.shape == (2, backbone.out_features)
    encoding.square().sum().backward()
    assert (pictures.grad.abs().sum((0, 2, 3)) > 0).all()
    trained = [name for name, p in backbone.named_parameters() if p.requires_grad and p.grad is None]
    assert trained == []
    idle = [name for name, p in backbone.named_parameters() if not p.requires_grad]
    assert idle == (["backbone.embeddings.mask_token"] if family == "dinov2" else [])
    copied = copy.deepcopy(backbone).eval()
    torch.testing.assert_close(copied(pictures), backbone.eval()(pictures))


@pytest.mark.parametrize("family", VISION)
def test_features_are_those_that_transformers_gives(family, folders):
    theirs = AutoModel.from_pretrained(folders[family]).eval()
    ours = VisionBackbone(folders[family], pretrained=folders[family]).eval()
    pictures = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        output = theirs(pictures)
        if family == "vit":  # whose pooled output has a layer that published weights lack
            wanted = output.last_hidden_state[:, 0]
        elif family == "segformer":  # which pools nothing
            wanted = output.last_hidden_state.mean((2, 3))
        else:
            wanted = output.pooler_output.flatten(1)
        torch.testing.assert_close(ours(pictures), wanted)


def test_grey_pictures_in_three_channels_and_in_one_are_encoded_alike(folders):
    for family in ("convnext", "vit", "swin"):
        colour, grey = (VisionBackbone(folders[family], n, pretrained=folders[family]).eval() for n in (3, 1))
        pictures = torch.rand(2, 1, 32, 32)
        torch.testing.assert_close(grey(pictures), colour(pictures.expand(2, 3, 32, 32)), rtol=1e-4, atol=1e-5)


def test_without_weights_the_folder_says_the_architecture_only(folders):
    random, read = (VisionBackbone(folders["resnet"], pretrained=name) for name in (None, folders["resnet"]))
    assert [p.shape for p in random.parameters()] == [p.shape for p in read.parameters()]
    stem = "backbone.embedder.embedder.convolution.weight"
    assert not torch.equal(random.state_dict()[stem], read.state_dict()[stem])


def test_weights_of_a_classifier_serve_without_its_head(tmp_path: Path):
    config = AutoConfig.for_model("vit", **VISION["vit"])
    classifier = ViTForImageClassification(config)
    classifier.save_pretrained(tmp_path)
    backbone = VisionBackbone(str(tmp_path), pretrained=tmp_path)
    for name, tensor in backbone.backbone.state_dict().items():
        assert torch.equal(tensor, classifier.vit.state_dict()[name])


def test_half_precision_weights_become_float32(tmp_path: Path):
    network = AutoModel.from_config(AutoConfig.for_model("convnext", **VISION["convnext"])).half()
    network.save_pretrained(tmp_path)
    backbone = VisionBackbone(str(tmp_path), pretrained=tmp_path)
    assert {p.dtype for p in backbone.parameters()} == {torch.float32}


def test_pickled_weights_are_read_as_tensors_only(tmp_path: Path, folders):
    network = AutoModel.from_pretrained(folders["resnet"])
    network.config.save_pretrained(tmp_path)
    torch.save(network.state_dict(), tmp_path / "pytorch_model.bin")
    backbone = VisionBackbone(str(tmp_path), pretrained=tmp_path)
    assert torch.equal(next(backbone.parameters()), next(network.parameters()))
    torch.save({"weight": nn.Linear(1, 1)}, tmp_path / "pytorch_model.bin")  # an object, which a pickle can be
    with pytest.raises(ValueError, match="cannot be loaded from that folder"):
        VisionBackbone(str(tmp_path), pretrained=tmp_path)


def test_what_is_no_backbone_for_pictures_is_refused(tmp_path: Path, folders):
    with pytest.raises(ValueError, match=r"backbone '.*' \(bert\) takes no images"):
        VisionBackbone(save(tmp_path / "bert", "bert", TEXT["bert"]))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"backbone '.*empty' cannot be loaded from that folder: "):
        VisionBackbone(str(tmp_path / "empty"))
    with pytest.raises(ValueError, match=r"pretrained must hold a .*vit, .*swin holds another network"):
        VisionBackbone(folders["vit"], pretrained=folders["swin"])
    with pytest.raises(ValueError, match="channels must be at least 1"):
        VisionBackbone(folders["vit"], 0)
    larger = save(tmp_path / "larger", "vit", {**VISION["vit"], "image_size": 64})
    with pytest.raises(ValueError, match=r"position_embeddings in .*larger is \(1, 65, 16\), not \(1, 17, 16\)"):
        VisionBackbone(folders["vit"], pretrained=larger)
    with pytest.raises(
        ValueError, match=r"imagenet is of efficientnet-lite0; resnet-18 .* such as microsoft/resnet-18"
    ):
        VisionBackbone("resnet-18", pretrained="imagenet")


def test_weights_that_lack_a_layer_are_refused(tmp_path: Path, folders):
    network = AutoModel.from_pretrained(folders["resnet"])
    weights = network.state_dict()
    left_out = next(name for name in weights if name.endswith("convolution.weight"))
    del weights[left_out]
    network.save_pretrained(tmp_path, state_dict=weights)
    with pytest.raises(ValueError, match=f"has no weights for {left_out}"):
        VisionBackbone(folders["resnet"], pretrained=tmp_path)


def test_weights_are_named_for_every_backbone():
    assert WEIGHTS.keys() == BACKBONES.keys()


def test_settings_without_weights_build_the_same_network(folders):
    settings = VisionSettings(backbone=folders["convnext"], pretrained=folders["convnext"])
    assert untrained(settings) == VisionSettings(backbone=folders["convnext"])
    assert build(untrained(settings), torch.zeros(3, 32, 32), _Two()).encoder.out_features == 16


class _Two:
    outputs = 2
