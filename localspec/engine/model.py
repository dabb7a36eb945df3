"""A loaded model: its vocabulary, its facts, and the way to contexts."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from llama_cpp import llama_cpp as L

from localspec.engine import bindings, logs, memory
from localspec.engine.base import TreeContext
from localspec.engine.metadata import metadata_of, native_string
from localspec.engine.params import ContextParams, available_memory, check_gpu_layers
from localspec.errors import EngineError, LocalspecError, ModelError
from localspec.fingerprint import file_fingerprint
from localspec.gguf_check import check_gguf

#: called with the loaded share, 0.0 to 1.0; returns False to stop loading
LoadProgress = Callable[[float], bool]

_backend_lock = threading.Lock()
_backend_ready = False


def init_backend() -> None:
    """Start the native library once for the process, with its logs routed into `logging`."""
    global _backend_ready
    with _backend_lock:
        if not _backend_ready:
            logs.install()
            L.llama_backend_init()
            _backend_ready = True


#: a list of devices that ends at once; the library keeps its address
_NO_DEVICES = (ctypes.c_void_p * 1)(None)


def set_gpu_layers(params: Any, n_gpu_layers: int) -> None:
    """Say in `llama_model_params` how many layers go to a GPU. With none, no GPU takes part at all: else the library
    has one multiply steps of 32 tokens or more, for which it copies the weights there each time."""
    params.n_gpu_layers = n_gpu_layers
    if n_gpu_layers == 0:
        params.devices = ctypes.addressof(_NO_DEVICES)


class Model:
    """Weights and vocabulary of one GGUF file. Made by `Model.load`; a context manager.

    `size_bytes` counts the tensors. `gguf_name` is what the file calls itself, None if it does not say. Token ids that
    a model lacks (`bos`, `eos`, `eot`) are None. `handle` and `vocab` are native pointers, for this package only.
    """

    def __init__(self, handle: Any, path: Path, n_gpu_layers: int) -> None:
        self.handle = handle
        self.path = path
        self._n_gpu_layers = n_gpu_layers
        self._owned: weakref.WeakSet[Any] = weakref.WeakSet()
        self._free = weakref.finalize(self, _release, handle, self._owned)
        self.vocab = L.llama_model_get_vocab(handle)
        self.metadata: Mapping[str, str] = metadata_of(handle)
        self.gguf_name: str | None = self.metadata.get("general.name") or None
        self.arch = self.metadata.get("general.architecture", "")
        self.n_vocab = int(L.llama_vocab_n_tokens(self.vocab))
        self.n_ctx_train = int(L.llama_model_n_ctx_train(handle))
        self.n_embd = int(L.llama_model_n_embd(handle))
        self.n_layer = int(L.llama_model_n_layer(handle))
        self.n_swa = int(L.llama_model_n_swa(handle))
        self.n_params = int(L.llama_model_n_params(handle))
        self.size_bytes = int(L.llama_model_size(handle))
        self.description = native_string(lambda buffer, size: L.llama_model_desc(handle, buffer, size))
        self.is_recurrent = bool(L.llama_model_is_recurrent(handle))
        self.is_hybrid = bool(L.llama_model_is_hybrid(handle))
        self.is_encoder = self.metadata.get(f"{self.arch}.attention.causal") == "false"
        self.bos = _token(L.llama_vocab_bos(self.vocab))
        self.eos = _token(L.llama_vocab_eos(self.vocab))
        self.eot = _token(L.llama_vocab_eot(self.vocab))
        self.add_bos = bool(L.llama_vocab_get_add_bos(self.vocab))
        template = L.llama_model_chat_template(handle, None)
        self.chat_template: str | None = template.decode("utf-8", "replace") if template else None
        self._pieces: list[bytes | None] = [None] * self.n_vocab
        self._buffer = ctypes.create_string_buffer(512)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        n_gpu_layers: int = -1,
        use_mmap: bool = True,
        progress: LoadProgress | None = None,
        encoder: bool = False,
    ) -> Model:
        """Load a GGUF file; `n_gpu_layers` -1 puts all layers on the GPU where the build has one. An `encoder`, which
        embeds texts and writes none, is taken only by those who ask for one.

        Raises `UsageError` for any other negative number, `ModelNotFoundError` for a path that leads nowhere,
        `ModelError` for a file that cannot be used, and `EngineError` when `progress` said stop.
        """
        check_gpu_layers(n_gpu_layers)
        path = Path(path).expanduser()
        check_gguf(path)
        init_backend()
        params = L.llama_model_default_params()
        set_gpu_layers(params, n_gpu_layers)
        params.load_mode = L.LLAMA_LOAD_MODE_MMAP if use_mmap else L.LLAMA_LOAD_MODE_NONE
        watch = _LoadWatch(progress)
        params.progress_callback = watch.callback
        mark = logs.n_errors()
        handle = L.llama_model_load_from_file(os.fsencode(path), params)
        if not handle:
            if watch.failure is not None:
                raise watch.failure
            if watch.stopped:
                raise EngineError(f"loading {path.name} was stopped")
            raise ModelError(f"{path.name} cannot be loaded: {logs.reason(mark, 'the library gave no reason')}")
        model = cls(handle, path, n_gpu_layers)
        try:
            model.refuse_unsupported(encoder)
        except LocalspecError:
            model.close()
            raise
        return model

    def refuse_unsupported(self, encoder: bool = False) -> None:
        """Raise `ModelError` for a kind of model that cannot run here, such as one that is an encoder or is none."""
        if L.llama_model_has_encoder(self.handle) or not L.llama_model_has_decoder(self.handle):
            raise ModelError(f"{self.path.name} is an encoder ({self.arch}); localspec runs decoder-only models")
        if L.llama_model_is_diffusion(self.handle):
            raise ModelError(f"{self.path.name} is a diffusion model ({self.arch}); localspec runs decoder-only models")
        if self.is_encoder and not encoder:
            raise ModelError(f"{self.path.name} embeds texts ({self.arch}) and writes none")
        if self.n_vocab == 0:
            raise ModelError(f"{self.path.name} has no vocabulary")

    @cached_property
    def eog(self) -> frozenset[int]:
        """Ids of the tokens that end a generation."""
        is_eog, vocab = L.llama_vocab_is_eog, self.vocab
        return frozenset(token for token in range(self.n_vocab) if is_eog(vocab, token))

    @cached_property
    def suppressed(self) -> tuple[int, ...]:
        """Ids that the model's own file forbids to generate."""
        count = ctypes.c_int32(0)
        tokens = L.llama_vocab_get_suppress_tokens(self.vocab, ctypes.byref(count))
        return tuple(tokens[: count.value]) if count.value else ()

    @cached_property
    def fingerprint(self) -> str:
        """Identity of the file's content: 16 hex digits from its size, first and last MiB."""
        return file_fingerprint(self.path)

    def tokenize(self, text: str, add_special: bool = False, parse_special: bool = False) -> list[int]:
        """Token ids of `text`.

        `add_special` adds what the model wants around a prompt (BOS); `parse_special` reads the text of special tokens
        as those tokens.
        """
        data = text.encode("utf-8", "replace")
        capacity = len(data) + 8
        while True:
            tokens = (L.llama_token * capacity)()
            n = L.llama_tokenize(self.vocab, data, len(data), tokens, capacity, add_special, parse_special)
            if n >= 0:
                return list(tokens[:n])
            if -n <= capacity:
                raise EngineError(f"text of {len(data)} bytes cannot be tokenized")
            capacity = -n

    def special_text(self, token: int | None) -> str:
        """The text of a special token, as chat templates write it; none for no token."""
        if token is None:
            return ""
        buffer = ctypes.create_string_buffer(256)
        n = L.llama_token_to_piece(self.vocab, token, buffer, len(buffer), 0, True)
        return buffer.raw[: max(0, n)].decode("utf-8", "replace")

    def piece(self, token: int) -> bytes:
        """Bytes of a token, not always whole UTF-8 characters; empty for special tokens."""
        piece = self._pieces[token]
        if piece is None:
            size = len(self._buffer)
            n = L.llama_token_to_piece(self.vocab, token, self._buffer, size, 0, False)
            if n < 0:
                self._buffer = ctypes.create_string_buffer(-n)
                return self.piece(token)
            piece = self._pieces[token] = self._buffer.raw[:n]
        return piece

    def text(self, tokens: Iterable[int]) -> bytes:
        """Bytes of several tokens, joined."""
        return b"".join(map(self.piece, tokens))

    def new_context(self, params: ContextParams | None = None) -> TreeContext:
        """Make a context of the mode in `params`; "auto" takes the patched library where it is installed.

        Raises `UsageError` for unusable parameters and `EngineError` when the memory does not suffice.
        """
        params = params or ContextParams()
        params.validate()
        self._refuse_oversized(params)
        context: TreeContext
        if params.mode == "stock" or (params.mode == "auto" and bindings.library() is None):
            from localspec.engine.stock import StockContext

            context = StockContext(self, params)
        else:
            from localspec.engine.patched import new_patched_context

            context = new_patched_context(self, params)
        self.own(context)
        return context

    def own(self, resource: Any) -> None:
        """Have `resource`, which uses the native model, closed before the model is."""
        self._owned.add(resource)

    @property
    def shape(self) -> memory.Shape:
        """The sizes that decide how much memory a context takes."""
        n_head = max(1, int(L.llama_model_n_head(self.handle)))

        def size(key: str, default: int) -> int:
            text = self.metadata.get(f"{self.arch}.{key}", "")
            return int(text) if text.isdecimal() else default

        return memory.Shape(
            n_vocab=self.n_vocab,
            n_embd=self.n_embd,
            n_layer=self.n_layer,
            n_head=n_head,
            n_head_kv=int(L.llama_model_n_head_kv(self.handle)),
            d_k=size("attention.key_length", self.n_embd // n_head),
            d_v=size("attention.value_length", self.n_embd // n_head),
            n_ff=size("feed_forward_length", 0),
        )

    def _refuse_oversized(self, params: ContextParams) -> None:
        # The library clears its cache at once: on a machine that overcommits, too large a cache gets the process
        # killed instead of an error. On a GPU the allocation fails properly, so only host memory is judged here.
        if self._n_gpu_layers != 0 and L.llama_supports_gpu_offload():
            return
        available = available_memory()
        if available is None or self.is_recurrent or self.is_hybrid:
            return
        memory.refuse_oversized(self.shape, params, params.resolve_n_ctx(self.n_ctx_train), available)

    def close(self) -> None:
        """Free the model and everything made from it. Idempotent."""
        self._free()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _release(handle: Any, owned: Iterable[Any]) -> None:
    # A context that outlives its model would read freed memory, also when the interpreter ends.
    for resource in list(owned):
        resource.close()
    L.llama_model_free(handle)


class _LoadWatch:
    """The progress callback of one load. Exceptions cannot cross C frames, so they wait here."""

    def __init__(self, progress: LoadProgress | None) -> None:
        self._progress = progress
        self.stopped = False
        self.failure: BaseException | None = None
        self.callback = L.llama_progress_callback(self._report)

    def _report(self, share: float, _user_data: object) -> bool:
        if self._progress is None:
            return True
        try:
            self.stopped = not self._progress(share)
        except BaseException as failure:
            self.failure = failure
            return False
        return not self.stopped


def _token(token: int) -> int | None:
    return int(token) if token >= 0 else None
