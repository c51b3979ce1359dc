"""Vectors as the matrix product of a search wants them: centred, scaled and in the order of its plan."""

import math

import numpy as np
import torch
from torch import Tensor

PIECE = 1 << 17  # numbers handled at a time: they stay in the cache
ALIGNED = 64  # bytes


def roomy_empty(n_rows: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return an uninitialised matrix (n_rows, width), for one that is large.

    On the CPU it lies in memory of NumPy, which asks the system for huge pages: what jumps from row to row finds its
    way faster, and the first touch of each page costs less.
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


def prepare(
    vectors: Tensor, order: Tensor, center: Tensor, scale: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the rows in ``order``, centred and scaled, their squared norms, and the norms of what rounding took.

    Norms are of the rows in float32, and what rounding to that took is not counted. Works in pieces that stay in the
    cache, so that no wider copy is made of the whole.
    """
    out = roomy_empty(len(order), vectors.shape[1], dtype, vectors.device)
    norm = torch.empty(len(order), device=vectors.device)
    lost = torch.zeros(len(order), device=vectors.device)
    step = max(1, PIECE // max(1, vectors.shape[1]))
    single = dtype == torch.float32
    scratch = torch.empty(0 if single else step, vectors.shape[1], device=vectors.device)
    for start in range(0, len(order), step):
        part = slice(start, min(start + step, len(order)))
        piece = out[part] if single else scratch[: part.stop - start]
        prepare_piece(vectors, order[part], center, scale, piece)
        norm[part] = squared_norm(piece)
        if not single:
            out[part] = piece
            lost[part] = torch.linalg.vector_norm(piece.sub_(out[part]), dim=1)
    return out, norm, lost


def prepare_piece(vectors: Tensor, rows: Tensor, center: Tensor, scale: float, out: Tensor) -> None:
    """Write the rows, centred and scaled in the type of the centre, to ``out``, float32."""
    if vectors.dtype == center.dtype == torch.float32:
        torch.index_select(vectors, 0, rows, out=out)
        out.sub_(center).mul_(scale)
    else:
        out.copy_(vectors[rows].to(center.dtype).sub_(center).mul_(scale))


def squared_norm(vectors: Tensor) -> Tensor:
    """Return the squared lengths (n,) of vectors (n, d)."""
    norm: Tensor = torch.linalg.vector_norm(vectors, dim=1)
    return norm.square_()
