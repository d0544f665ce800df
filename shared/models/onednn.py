# ruff: noqa: SLF001 - torch has no public name for the operators that its own compiler emits
"""Layers for inference on a CPU, their weights laid out for oneDNN once instead of in every call.

Why: where MKL does not favour the processor, `nn.Linear` in float32 has half the speed of oneDNN's kernels,
and small convolutions spend up to a third of their time on the layout of weights. Besides, these kernels add
up each output in an order that does not depend on the size of the batch: what a session gets is the same to
the bit, whoever shares its batch.

Packed layers compute in a dtype of their own and return what dtype they were given. They hold no parameters,
so a packed model can't be trained, moved or saved: load, then pack.

Shape suffixes: B batch, C channels in, O channels out, T time, K kernel, H W picture.
"""

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from shared.errors import DeviceError

MAX_COLUMNS = 1024  # of a matrix; a lone row of more is added up in another order than a row among others


@runtime_checkable
class Packable(Protocol):
    """A module that has a form of its own for inference."""

    def packed(self, dtype: torch.dtype) -> nn.Module:
        """Return that form; this module is not used any more."""


class PackedLinear(nn.Module):
    """Linear layer, with GELU behind it if wanted."""

    def __init__(
        self, weight_OC: Tensor, bias_O: Tensor | None, dtype: torch.dtype, *, gelu: bool = False
    ) -> None:
        super().__init__()
        self.dtype = dtype
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight_OC.detach().to(dtype).contiguous())
        self.bias = None if bias_O is None else bias_O.detach().to(dtype)
        self.wide = weight_OC.shape[1] > MAX_COLUMNS
        self.then: tuple[str, list[float], str] = ("gelu", [], "none") if gelu else ("none", [], "")

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, ..., C] to [B, ..., O]."""
        if self.wide and x.numel() == x.shape[-1]:
            pair: Tensor = self(torch.cat([x, x]))
            return pair[:1]
        linear = torch.ops.mkldnn._linear_pointwise.default
        y: Tensor = linear(x.to(self.dtype), self.weight, self.bias, *self.then)
        return y.to(x.dtype)


class PackedPointwise(nn.Module):
    """Convolution of kernel 1 over pictures, as a matrix product over the channels."""

    def __init__(self, conv: nn.Conv2d, dtype: torch.dtype) -> None:
        super().__init__()
        self.linear = PackedLinear(conv.weight.flatten(1), conv.bias, dtype)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Map [B, C, H, W] to [B, O, H, W], channels-last."""
        y_BHWO: Tensor = self.linear(x_BCHW.permute(0, 2, 3, 1))
        return y_BHWO.permute(0, 3, 1, 2)


class PackedConv2d(nn.Module):
    """Convolution over pictures."""

    def __init__(self, conv: nn.Conv2d, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.geometry = (conv.padding, conv.stride, conv.dilation, conv.groups)
        self.weight = conv.weight.detach().to(dtype).to_mkldnn()
        self.bias = None if conv.bias is None else conv.bias.detach().to(dtype)
        self.laid_out_for: torch.Size | None = None

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Convolve [B, C, H, W] to [B, O, H', W'], channels-last."""
        x = x_BCHW.to(dtype=self.dtype, memory_format=torch.channels_last)
        if x.shape[1:] != self.laid_out_for:
            self._lay_out(x.shape)
        convolution = torch.ops.mkldnn._convolution_pointwise.default
        y: Tensor = convolution(x, self.weight, self.bias, *self.geometry, "none", [], "")
        return y.to(x_BCHW.dtype)

    def _lay_out(self, shape: torch.Size) -> None:
        """Which layout the kernel wants depends on the size of the picture, though not of the batch.

        With another layout the result is the same, but a call takes up to 50 times as long.
        """
        plain = self.weight.to_dense().to_mkldnn()
        reorder = torch.ops.aten.mkldnn_reorder_conv2d_weight.default
        self.weight = reorder(plain, *self.geometry, list(shape))
        self.laid_out_for = shape[1:]


class PackedDepthwise(nn.Module):
    """Depthwise convolution over time as a product and a sum, always in float32, for it costs little.

    Made for input whose channels lie next to each other in memory.
    """

    def __init__(self, conv: nn.Conv1d) -> None:
        super().__init__()
        assert conv.bias is not None
        self.weight_KC = conv.weight.detach()[:, 0].t().contiguous()
        self.bias = conv.bias.detach()

    def forward(self, x_BCT: Tensor) -> Tensor:
        """Convolve [B, C, T] to [B, C, T - K + 1]."""
        windows_BTKC = x_BCT.unfold(2, len(self.weight_KC), 1).permute(0, 2, 3, 1)
        return ((windows_BTKC * self.weight_KC).sum(2) + self.bias).transpose(1, 2)


def pack(module: nn.Module, dtype: torch.dtype = torch.float32) -> None:
    """Replace the layers within `module` by packed ones that compute in `dtype`, in place.

    Where torch has no oneDNN, or the weights are not on a CPU, nothing is replaced.

    Raises:
        DeviceError: the processor can't compute in `dtype`.
    """
    if not torch._C._has_mkldnn or any(weight.device.type != "cpu" for weight in module.parameters()):
        return
    if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        raise DeviceError("bfloat16: oneDNN needs AVX-512 for it, which this processor lacks; use float32")
    for name, child in module.named_children():
        setattr(module, name, packed_layer(child, dtype))


def packed_layer(layer: nn.Module, dtype: torch.dtype) -> nn.Module:
    """The packed form of one layer; of a module that has none, the module itself with its parts packed."""
    if isinstance(layer, Packable):
        return layer.packed(dtype)
    if isinstance(layer, nn.Linear):
        return PackedLinear(layer.weight, layer.bias, dtype)
    if isinstance(layer, nn.Conv2d):
        return packed_conv2d(layer, dtype)
    if isinstance(layer, nn.Conv1d) and layer.groups == layer.in_channels == layer.out_channels:
        return PackedDepthwise(layer)
    pack(layer, dtype)
    return layer


def packed_conv2d(conv: nn.Conv2d, dtype: torch.dtype) -> nn.Module:
    """The packed form of a convolution over pictures."""
    pointwise = conv.kernel_size == conv.stride == (1, 1) and conv.groups == 1
    return PackedPointwise(conv, dtype) if pointwise else PackedConv2d(conv, dtype)
