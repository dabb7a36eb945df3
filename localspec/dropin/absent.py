"""What a `llama_cpp.Llama` has and a `localspec.Llama` has not, each with the way out."""

from __future__ import annotations

from localspec.dropin.errors import AbsentError

_GENERATE = "`generate` and `create_completion` evaluate and sample, and tell log-probabilities"
_CACHED = "the beginning that a prompt has in common with earlier ones is cached without it"
_SHARED = "one context serves all calls; `localspec.session` has one of its own"

ABSENT = {
    "eval": _GENERATE,
    "sample": _GENERATE,
    "scores": _GENERATE,
    "eval_logits": _GENERATE,
    "eval_tokens": _GENERATE,
    "input_ids": _GENERATE,
    "n_tokens": _GENERATE,
    "_scores": _GENERATE,
    "_input_ids": _GENERATE,
    "save_state": _CACHED,
    "load_state": _CACHED,
    "ctx": _SHARED,
    "model": _SHARED,
    "_ctx": _SHARED,
    "_model": _SHARED,
    "_batch": _SHARED,
}


def refusal(name: str) -> AttributeError:
    """The error for an attribute that is not there."""
    if name in ABSENT:
        return AbsentError(f"localspec.Llama has no {name}: its engine decodes several requests at once", ABSENT[name])
    return AttributeError(f"'Llama' object has no attribute {name!r}")
