"""What a bench says it was measured on."""

import torch

from benchmarks.machine import describe


def test_a_description_for_tables() -> None:
    about = describe("thinker on 0, performer on 1")
    assert about["pinning"] == "thinker on 0, performer on 1"
    assert describe()["pinning"] == "none"
    assert about["threads per process"] == torch.get_num_threads()
    assert about["torch"] == torch.__version__
    assert all(value != "" for value in about.values())
