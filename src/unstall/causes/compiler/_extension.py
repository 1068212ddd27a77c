"""The C++ extension, compiled without the headers of torch, and the function about it that its causes plant."""

SOURCE = '''\
import os
import tempfile
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <pybind11/pybind11.h>
#include <cstdint>

void bend(int64_t from, int64_t to, int64_t n) {
  const float* x = reinterpret_cast<const float*>(from);
  float* y = reinterpret_cast<float*>(to);
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] > 0 ? x[i] : 0.1f * x[i];
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("bend", &bend); }
"""
'''
FUNCTION = """\
class Bend(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.empty_like(x)
        ext.bend(x.data_ptr(), y.data_ptr(), x.numel())
        return y

    @staticmethod
    def backward(ctx, grad):
        return grad


"""
