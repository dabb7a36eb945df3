"""What makes no heads is refused, and so is another base model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from localspec.errors import ModelError, UsageError
from localspec.heads.spec import BaseFacts, HeadSpec, check_base
from tests.heads.checkpoints import EPS, H, V
from tests.heads.random_heads import PREFIX, spec_of


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"n_heads": 0}, "n_heads of the heads is 0"),
        ({"n_layers": -1}, "n_layers of the heads is -1"),
        ({"n_heads": 65}, "more than 64"),
        ({"arch": "eagle"}, "'eagle' are not known"),
        ({"arch": "medusa"}, "not grounded"),
        ({"arch": "hydra-prefix-mlp"}, "need a prefix layer"),
        ({"prefix": PREFIX}, "have no prefix layer"),
        ({"n_draft_vocab": V + 1}, "do not fit"),
        ({"n_later_vocab": 63}, "63 tokens for heads after the first are no multiple of 64"),
        ({"n_later_vocab": 64, "n_draft_vocab": 63}, "or more than the 63 of the first"),
        ({"base_fingerprint": "0123"}, "not 16 hexadecimal digits"),
    ],
)
def test_specs_are_checked(values, reason):
    with pytest.raises(UsageError, match=reason):
        spec_of(**{"arch": "hydra-mlp"} | values)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"n_head": 0}, "n_head is 0"),
        ({"n_head_kv": 3}, "not a multiple of its 3"),
        ({"n_rope": 7}, "rotates 7 of 8"),
        ({"n_rope": 10}, "rotates 10 of 8"),
        ({"rms_eps": 0.0}, "rms_eps is 0.0"),
        ({"rope_theta": float("inf")}, "rope_theta is inf"),
        ({"rope_theta": 1e300}, "rope_theta is 1e.300"),
        ({"rms_eps": 1e-60}, "rms_eps is 1e-60"),
    ],
)
def test_prefix_specs_are_checked(values, reason):
    with pytest.raises(UsageError, match=reason):
        replace(PREFIX, **values)


def test_numbers_have_the_precision_of_the_file():
    assert PREFIX.rms_eps == float(np.float32(EPS))


def test_another_base_model_is_refused_by_name():
    spec: HeadSpec = spec_of(arch="hydra-mlp", base_name="vicuna", base_fingerprint="0123456789abcdef")
    check_base(spec, BaseFacts("vicuna", H, V, "0123456789abcdef"))
    check_base(spec, BaseFacts("vicuna", H, V))
    check_base(replace(spec, base_fingerprint=""), BaseFacts("vicuna", H, V, "f" * 16))
    for base, reason in (
        (BaseFacts("qwen", H * 2, V), "hidden states have 64 elements, the heads take 32"),
        (BaseFacts("qwen", H, V + 1), "it has 102 tokens, the heads know 101"),
        (BaseFacts("qwen", H, V, "f" * 16), f"fingerprint {'f' * 16}, not 0123456789abcdef"),
    ):
        with pytest.raises(ModelError, match=reason) as caught:
            check_base(spec, base)
        assert "made for vicuna and do not fit qwen" in caught.value.message
        assert caught.value.hint == "choose heads that were made for qwen, or the model vicuna"
    with pytest.raises(ModelError, match="made for another model"):
        check_base(replace(spec, base_name=""), BaseFacts("qwen", H * 2, V))
