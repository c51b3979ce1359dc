"""Networks of the transformers library: their architecture by name, their weights by name.

Code that comes with weights is never run, and pickled weights are read as tensors only.
"""

from typing import Any

from torch import Tensor, nn

from okapi.hub import first_line, load


def read_architecture(what: str, name: str, otherwise: str = "") -> Any:
    """Return the configuration of a network, from a folder or by its name on the hub.

    Parameters
    ----------
    what : str
        How errors call it.
    name : str
    otherwise : str
        What else the user may do, as the end of a sentence.
    """
    from transformers import AutoConfig

    def read(local: bool) -> Any:
        return AutoConfig.from_pretrained(name, local_files_only=local, trust_remote_code=False)

    return load(what, name, read, otherwise)


def make_network(what: str, name: str, architecture: Any) -> Any:
    """Return the network of a configuration, without a head and with random weights, drawn from torch's generator."""
    from transformers import AutoModel

    try:
        network = AutoModel.from_config(architecture, trust_remote_code=False)  # type: ignore[no-untyped-call]
    except Exception as error:  # transformers raises ValueError, ImportError, KeyError, ...
        raise ValueError(f"{what} {name!r} cannot be built: {first_line(error)}") from error
    return _without_learnt_pooler(network.float())  # a configuration may ask for half precision


def copy_weights(network: nn.Module, name: str, called: str, otherwise: str = "") -> None:
    """Give a network the weights of a folder, or of a name on the hub.

    If they were learnt on another number of channels, the first layer is given the mean over its channels for each of
    these, scaled so that its outputs are about as large as before.

    Parameters
    ----------
    network : Module
    name : str
    called : str
        What errors call the network.
    otherwise : str
        What else the user may do, as the end of a sentence.
    """
    from transformers import AutoModel

    def read(local: bool) -> Any:
        return AutoModel.from_pretrained(
            name, local_files_only=local, trust_remote_code=False, weights_only=True, output_loading_info=True
        )

    published, info = load("pretrained", name, read, otherwise)
    weights, wanted = _without_learnt_pooler(published).state_dict(), network.state_dict()
    if weights.keys() != wanted.keys():
        raise ValueError(f"pretrained must hold a {called}, {name} holds another network")
    if missing := sorted(set(info["missing_keys"]) & weights.keys()):
        raise ValueError(f"pretrained must hold a {called}, {name} has no weights for {missing[0]}")
    for key, weight in weights.items():
        if weight.shape != wanted[key].shape:
            if not _differ_in_channels(weight, wanted[key]):
                raise ValueError(
                    f"pretrained must hold a {called}: {key} in {name} is {tuple(weight.shape)}, "
                    f"not {tuple(wanted[key].shape)}"
                )
            weights[key] = adapt_channels(weight, wanted[key].shape[1])
    network.load_state_dict(weights)


def adapt_channels(weight: Tensor, channels: int) -> Tensor:
    """Return the weights (out, channels, h, w) of a first layer (out, before, h, w) for another number of channels.

    Each gets the mean over those before, scaled so that outputs are about as large as they were.

    Examples
    --------
    >>> import torch
    >>> adapt_channels(torch.tensor([1.0, 2.0, 3.0]).view(1, 3, 1, 1), 2).flatten()
    tensor([3., 3.])
    """
    before = weight.shape[1]
    mean = weight.mean(1, keepdim=True) * (before / channels)
    return mean.expand(-1, channels, -1, -1).contiguous()


def freeze_unused(network: nn.Module, encoding: Tensor) -> None:
    """Exclude from learning what an encoding does not depend on, such as DINOv2's token for masked patches.

    Several processes would wait for its gradients for ever.
    """
    encoding.sum().backward()
    for parameter in network.parameters():
        if parameter.grad is None:
            parameter.requires_grad_(False)
        parameter.grad = None


def _without_learnt_pooler(network: Any) -> Any:
    """Return the network without a linear layer on its pooled output: published weights mostly lack it."""
    pooler = getattr(network, "pooler", None)
    if isinstance(pooler, nn.Module) and any(isinstance(part, nn.Linear) for part in pooler.modules()):
        network.pooler = None
    return network


def _differ_in_channels(weight: Tensor, wanted: Tensor) -> bool:
    return weight.ndim == wanted.ndim == 4 and (weight.shape[0], *weight.shape[2:]) == (
        wanted.shape[0],
        *wanted.shape[2:],
    )
