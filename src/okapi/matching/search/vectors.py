"""Vectors as the matrix product of a search wants them, and what that product's error can be."""

import math

import numpy as np
import torch
from torch import Tensor

AT_ONCE = 1 << 17  # numbers handled at a time: they stay in the cache
ALIGNED = 64  # bytes


def large_empty(n_rows: int, width: int, device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return an uninitialised matrix (n_rows, width), for one that is large.

    On the CPU it lies in memory of NumPy, which asks the system for huge pages: the first touch of each costs less.
    """
    if device.type != "cpu":
        return torch.empty(n_rows, width, dtype=dtype, device=device)
    n_bytes = n_rows * width * dtype.itemsize
    memory = np.empty(n_bytes + ALIGNED, np.uint8)
    start = -memory.ctypes.data % ALIGNED
    return torch.from_numpy(memory[start : start + n_bytes]).view(dtype).view(n_rows, width)


def center_and_scale(queries: Tensor, keys: Tensor) -> tuple[Tensor, float]:
    """Return a centre of the data and a power of two that brings centred values near one, against overflow.

    The centre is float64 if a side is, else float32: both sides are centred in its type, or the same point would lie
    in two places.
    """
    wide = torch.float64 in (queries.dtype, keys.dtype)
    center = keys[:: max(1, len(keys) // 4096)].double().mean(0)
    reach = torch.stack([x.double() for side in (queries, keys) for x in side.aminmax()]).abs().amax()
    spread = float(reach + center.abs().amax())
    exponent = math.frexp(spread)[1] if spread else 0
    most = 500 if wide else 126  # which the type can hold
    return center if wide else center.float(), 2.0 ** -max(-most, min(most, exponent))


def prepare(vectors: Tensor, order: Tensor, center: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Return the rows in ``order``, centred and scaled, (n, d), and their squared norms, (n,), in float32.

    In pieces that stay in the cache, so that no wider copy is made of the whole.
    """
    out = large_empty(len(order), vectors.shape[1], vectors.device)
    norm = torch.empty(len(order), device=vectors.device)
    step = max(1, AT_ONCE // vectors.shape[1])
    for start in range(0, len(order), step):
        part = slice(start, start + step)
        if vectors.dtype == center.dtype == torch.float32:
            torch.index_select(vectors, 0, order[part], out=out[part]).sub_(center).mul_(scale)
        else:
            out[part] = vectors[order[part]].to(center.dtype).sub_(center).mul_(scale)
        norm[part] = torch.linalg.vector_norm(out[part], dim=1).square_()
    return out, norm


def error_bound(width: int, query: Tensor, key: Tensor) -> Tensor:
    """Bound the error of ``|k|^2 / 2 - q.k`` in float32, of vectors of so many columns and such norms.

    Counts the rounding of the inputs, and of the product and the squared norms in any order of summation.
    """
    epsilon = torch.finfo(torch.float32).eps / 2
    squares = key.square() + query.square()
    return 1.01 * epsilon * ((width + 8) * query * key + (width / 2 + 4) * squares)
