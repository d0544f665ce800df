# ruff: noqa: SLF001 - torch has no public name for the operators that its own compiler emits
"""Layers for inference on a CPU, their weights laid out for oneDNN once instead of in every call.

Why: where MKL does not favour the processor, `nn.Linear` in float32 has half the speed of oneDNN's kernels,
and small convolutions spend up to a third of their time on the layout of weights. Besides, these kernels add
up each output in an order that does not depend on the size of the batch: what a session gets is the same to
the bit, whoever shares its batch.

Packed layers hold no parameters, so a packed model can't be trained, moved or saved: load, then pack.

Shape suffixes: B batch, C channels in, O channels out, T time, K kernel, H W picture.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class PackedLinear(nn.Module):
    """An `nn.Linear` computed in `dtype`; takes and returns what dtype its input has."""

    def __init__(self, weight_OC: Tensor, bias_O: Tensor | None, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight_OC.detach().to(dtype).contiguous())
        self.bias = None if bias_O is None else bias_O.detach().to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., C] to [..., O]."""
        y = torch.ops.mkldnn._linear_pointwise.default(
            x.to(self.dtype), self.weight, self.bias, "none", [], ""
        )
        result: Tensor = y.to(x.dtype)
        return result


class PackedPointwise(nn.Module):
    """An `nn.Conv2d` of kernel 1 as a matrix product over channels; input and output are channels-last."""

    def __init__(self, conv: nn.Conv2d, dtype: torch.dtype) -> None:
        super().__init__()
        self.linear = PackedLinear(conv.weight[:, :, 0, 0], conv.bias, dtype)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Map [B, C, H, W] to [B, O, H, W]."""
        y_BHWO: Tensor = self.linear(x_BCHW.permute(0, 2, 3, 1))
        return y_BHWO.permute(0, 3, 1, 2)


class PackedConv2d(nn.Module):
    """An `nn.Conv2d` computed in `dtype`; input and output are channels-last."""

    def __init__(self, conv: nn.Conv2d, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.geometry = (conv.padding, conv.stride, conv.dilation, conv.groups)
        self.weight = conv.weight.detach().to(dtype).to_mkldnn()
        self.bias = None if conv.bias is None else conv.bias.detach().to(dtype)
        self.laid_out_for: torch.Size | None = None

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Convolve [B, C, H, W]."""
        x = x_BCHW.to(dtype=self.dtype, memory_format=torch.channels_last)
        if x.shape[1:] != self.laid_out_for:
            self._lay_out(x.shape)
        y = torch.ops.mkldnn._convolution_pointwise.default(
            x, self.weight, self.bias, *self.geometry, "none", [], ""
        )
        result: Tensor = y.to(x_BCHW.dtype)
        return result

    def _lay_out(self, shape: torch.Size) -> None:
        """Which layout the kernel wants depends on the size of the picture, though not of the batch.

        With another layout the result is the same, but a call takes up to 50 times as long.
        """
        self.weight = torch.ops.aten.mkldnn_reorder_conv2d_weight.default(
            self.weight.to_dense().to_mkldnn(), *self.geometry, list(shape)
        )
        self.laid_out_for = shape[1:]


class PackedDepthwise(nn.Module):
    """A depthwise `nn.Conv1d` as one product and sum, for input whose channels lie next to each other."""

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
    """Replace the linear and convolution layers within `module`, in place, for inference in `dtype`.

    Activations keep their dtype between the layers. Depthwise layers stay in float32: they cost little.
    Where torch has no oneDNN, or the weights are not on a CPU, nothing is replaced.
    """
    if not torch._C._has_mkldnn:
        return
    for name, child in module.named_children():
        packed = _packed(child, dtype)
        if packed is None:
            pack(child, dtype)
        else:
            setattr(module, name, packed)


def _packed(layer: nn.Module, dtype: torch.dtype) -> nn.Module | None:
    if not isinstance(layer, nn.Linear | nn.Conv2d | nn.Conv1d) or layer.weight.device.type != "cpu":
        return None
    if isinstance(layer, nn.Linear):
        return PackedLinear(layer.weight, layer.bias, dtype)
    if isinstance(layer, nn.Conv1d):
        depthwise = layer.groups == layer.in_channels == layer.out_channels
        return PackedDepthwise(layer) if depthwise else None
    pointwise = layer.kernel_size == (1, 1) and layer.stride == (1, 1) and layer.groups == 1
    return PackedPointwise(layer, dtype) if pointwise else PackedConv2d(layer, dtype)
