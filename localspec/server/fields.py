"""The fields that requests of several APIs share, and what is done with those that nobody knows.

Models are strict: a text is no number. Null is the same as absent. Fields of no model are looked up by `unknown`: what
changes nothing is passed over, what would change the answer is refused, of the rest the reply tells in `warnings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from localspec.engine.params import MAX_BIAS, MAX_INT, MAX_PENALTY, MAX_TEMPERATURE, SamplingParams
from localspec.server import limits
from localspec.server.errors import ParamError
from localspec.server.settings import Bounds

#: fields that say something about a request and change nothing in its answer
_HARMLESS = frozenset(
    {
        "metadata",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "stream_options",
        "user",
    }
)
#: fields that would change the answer, and the values with which they do not
_CHANGING: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "modalities": (["text"],),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "web_search_options": (),
    "mirostat": (0,),
    "dry_multiplier": (0,),
    "xtc_probability": (0,),
    "dynatemp_range": (0,),
    "top_n_sigma": (-1, 0),
    "top_a": (0,),
    "tfs_z": (1,),
    "epsilon_cutoff": (0,),
    "eta_cutoff": (0,),
    "smoothing_factor": (0,),
    "length_penalty": (1,),
    "use_beam_search": (False,),
    "min_tokens": (0,),
    "stop_token_ids": ([],),
    "bad_words": ([],),
    "samplers": ([],),
    "lora": ([],),
    "control_vectors": ([],),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "structured_outputs": (),
    "n_discard": (0,),
}
#: values with which any unknown field asks for nothing
_NOTHING: tuple[Any, ...] = (None, False, [], {}, "")


#: whole numbers, which JSON may write as 1.0
Whole = int
#: how many tokens an answer has at most; -1 is no limit
MaxTokens = Annotated[Whole, Field(ge=-1, le=MAX_INT)]


def _integral(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


class Lenient(BaseModel):
    """A request: extra fields are kept, for `unknown`."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _whole_numbers(cls, data: Any) -> Any:
        """1.0 is a whole number in JSON."""
        if not isinstance(data, dict):
            return data
        return {
            name: [_integral(each) for each in value] if isinstance(value, list) else _integral(value)
            for name, value in data.items()
        }


class Speculate(Lenient):
    """How to speculate. Whatever the method, `strict` acceptance (the default) leaves the text as it is without."""

    method: Literal["auto", "off", "entmtp", "ptd", "fly", "lookup", "draft"] | None = None
    accept: Literal["strict", "typical", "loose"] | None = None


class SamplingFields(Lenient):
    """The sampler chain. What is absent is as the server was started."""

    temperature: float | None = Field(None, ge=0, le=MAX_TEMPERATURE)
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: Whole | None = Field(None, ge=-1, le=MAX_INT, description="0 or -1 turns it off.")
    min_p: float | None = Field(None, ge=0, le=1)
    typical_p: float | None = Field(None, ge=0, le=1)
    repeat_penalty: float | None = Field(None, gt=0, le=MAX_PENALTY)
    repetition_penalty: float | None = Field(None, gt=0, le=MAX_PENALTY, description="Another name of repeat_penalty.")
    repeat_last_n: Whole | None = Field(None, ge=-1, le=MAX_INT)
    presence_penalty: float | None = Field(None, ge=-MAX_PENALTY, le=MAX_PENALTY)
    frequency_penalty: float | None = Field(None, ge=-MAX_PENALTY, le=MAX_PENALTY)
    seed: Whole | None = Field(None, ge=-(2**63), le=2**64 - 1, description="Same seed, same text; -1 draws one.")
    logit_bias: dict[str, Annotated[float, Field(ge=-MAX_BIAS, le=MAX_BIAS)]] | None = Field(
        None, description="Token id to bias."
    )
    grammar: str | None = Field(None, description="GBNF.")
    json_schema: dict[str, Any] | None = None
    ignore_eos: bool | None = None
    cache_prompt: bool | None = None
    speculation: Speculate | None = None

    def sampling(self, base: SamplingParams, bounds: Bounds) -> SamplingParams:
        """The sampling without grammar and schema, over that of the server. Raises `ParamError`."""
        penalty = self.repetition_penalty if self.repeat_penalty is None else self.repeat_penalty
        given: dict[str, Any] = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": None if self.top_k is None else max(0, self.top_k),
            "min_p": self.min_p,
            "typical_p": self.typical_p,
            "repeat_penalty": penalty,
            "repeat_last_n": self.repeat_last_n,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "seed": None if self.seed is None else seed(self.seed),
            "logit_bias": limits.logit_bias(self.logit_bias, bounds) or None,
        }
        params = replace(base, **{name: value for name, value in given.items() if value is not None})
        params.validate()
        return params

    def speculate(self) -> tuple[str | None, str | None]:
        """Method and rule of acceptance."""
        asked = self.speculation or Speculate()
        return asked.method, asked.accept

    def warnings(self) -> tuple[str, ...]:
        """What the reply is to tell. Raises `ParamError` for fields that would change the answer."""
        mine = unknown(self.model_extra)
        return mine if self.speculation is None else mine + unknown(self.speculation.model_extra, "speculation.")


def seed(value: int) -> int:
    """A seed as samplers take it: -1 draws one, other negative numbers are taken as their bits."""
    return value if value >= -1 else value % 2**64


def max_tokens(*values: int | None, bounds: Bounds, param: str = "max_tokens") -> int | None:
    """The first limit that was given; None for none. Raises `ParamError` for one that is too large."""
    given = next((value for value in values if value is not None), -1)
    if given > bounds.max_tokens:
        raise ParamError(param, f"{param} is {given}; it is at most {bounds.max_tokens}")
    return None if given < 0 else given


def unknown(extra: Mapping[str, Any] | None, prefix: str = "") -> tuple[str, ...]:
    """Warnings about fields of no model. Raises `ParamError` for those that would change the answer."""
    ignored = []
    for name, value in (extra or {}).items():
        if name in _HARMLESS or value in _NOTHING:
            continue
        if name in _CHANGING:
            if value in _CHANGING[name]:
                continue
            raise ParamError(prefix + name, f"{prefix}{name} is not supported", "leave it out", "unsupported_parameter")
        ignored.append(f"{prefix}{ascii(name[:64])[1:-1]} is not known here and was ignored")
        if len(ignored) == 20:
            break
    return tuple(ignored)
