# SPDX-License-Identifier: Apache-2.0
"""Folders of torch.distributed.checkpoint, for the scripts that compare them with ttrun's."""
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader


def read(folder, reader=FileSystemReader):
    """All tensors of a folder, whole."""
    meta = reader(folder).read_metadata().state_dict_metadata
    sd = {k: torch.zeros(m.size, dtype=m.properties.dtype) for k, m in meta.items() if hasattr(m, "size")}
    dcp.load(sd, storage_reader=reader(folder), no_dist=True)
    return sd


def of_model(sd):
    return {k: v for k, v in sd.items() if not k.startswith(("optimizer.", "train_state.", "lr_scheduler."))}


def module(sd, value_of=torch.zeros_like, is_buffer=lambda name: False):
    """A module whose parameters, and buffers, have the names and shapes of sd; their values are value_of(tensor)."""
    root = torch.nn.Module()
    for name, tensor in sd.items():
        *path, last = name.split(".")
        at = root
        for p in path:
            if p not in at._modules:
                at.add_module(p, torch.nn.Module())
            at = at._modules[p]
        if is_buffer(last):
            at.register_buffer(last, value_of(tensor))
        else:
            at.register_parameter(last, torch.nn.Parameter(value_of(tensor)))
    return root
