"""`localspec.Llama`: llama_cpp's class by its interface, over an engine that speculates and serves many threads."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from os import PathLike, fspath
from typing import Any

from localspec.dropin import embedding, handlers, pretrained
from localspec.dropin.absent import refusal
from localspec.dropin.answer import updates
from localspec.dropin.asking import Asking
from localspec.dropin.calls import ChatCall, CompletionCall, Criteria, GenerateCall
from localspec.dropin.described import Described
from localspec.dropin.errors import CallError, PackageError
from localspec.dropin.opening import closer, open_engine
from localspec.dropin.options import RANDOM_SEED, read_options
from localspec.dropin.spelling import spelled_by
from localspec.dropin.telling import tell
from localspec.dropin.tokenizer import Tokenizer
from localspec.serving.api import Ended, Request, Update, Written


class Llama(Described):
    """A model in this process, with the interface of `llama_cpp.Llama`.

    `model_path` is a file or a name that `localspec models` lists; `options` are those of `LlamaOptions`. Calls from
    several threads are safe, and each gets what it would get alone. Results have the shapes of llama_cpp and tell
    `timings` and `speculation` beside. Errors of the caller's making are `LocalspecError`s and `ValueError`s.

    Seeds are as there: calls without one get seeds that follow from that of the model; a seed of -1 is drawn.
    """

    def __init__(self, model_path: str | PathLike[str], **options: Any) -> None:
        self.model_path = fspath(model_path)
        self._given = {"model_path": self.model_path, **options}
        self.options = read_options(options)
        opened = open_engine(self.model_path, self.options)
        self._engine, self._card = opened.engine, opened.card
        self._free = closer(self, opened)
        self._lock = threading.Lock()
        self._seed = self.options.seed or RANDOM_SEED
        self.verbose = self.options.verbose
        self.cache: Any = None
        self.chat_format = self.options.chat_format or handlers.DEFAULT_FORMAT
        self.chat_handler = handlers.handler_of(self.options, self._card)
        self.tokenizer_ = Tokenizer(self._engine, self._card)
        self._asking = Asking(self._engine, self._card, self.options, self.model_path)

    @classmethod
    def from_pretrained(
        cls,
        repo_id: str,
        filename: str | None,
        additional_files: Sequence[str] | None = None,
        local_dir: str | PathLike[str] | None = None,
        local_dir_use_symlinks: bool | str = "auto",
        cache_dir: str | PathLike[str] | None = None,
        **options: Any,
    ) -> Llama:
        """Download a model from the hub, unless it is in the hub's cache, and load it.

        `filename` is a file of the repository or a pattern that one file matches. Raises `CallError`, `DownloadError`,
        and what loading raises.
        """
        path = pretrained.download(repo_id, filename, additional_files, local_dir, local_dir_use_symlinks, cache_dir)
        return cls(str(path), **options)

    # Completions

    @spelled_by(CompletionCall)
    def create_completion(self, call: CompletionCall) -> Any:
        """The text that follows a prompt, given as text or tokens: a dict, or with `stream` an iterator of dicts.

        See `CompletionCall` for the arguments. Raises `CallError` and `PromptLengthError`.
        """
        return self._complete(call)

    @spelled_by(CompletionCall)
    def __call__(self, call: CompletionCall) -> Any:
        """`create_completion`."""
        return self._complete(call)

    def _complete(self, call: CompletionCall) -> Any:
        self._check_open()
        request, completion = self._asking.completion(call, self._next_seed(call.seed))
        answer = self._updates(request, call.stopping_criteria)
        return completion.stream(answer) if call.stream else completion.whole(answer)

    @spelled_by(ChatCall)
    def create_chat_completion(self, call: ChatCall) -> Any:
        """The reply to a conversation: a dict, or with `stream` an iterator of dicts.

        See `ChatCall` for the arguments. Raises `CallError` and `PromptLengthError`.
        """
        self._check_open()
        if self.chat_handler is not None:
            return handlers.run(self.chat_handler, self, call)
        request, chat = self._asking.chat(call, self._next_seed(call.seed))
        answer = self._updates(request)
        return chat.stream(answer) if call.stream else chat.whole(answer)

    @spelled_by(ChatCall)
    def create_chat_completion_openai_v1(self, call: ChatCall) -> Any:
        """`create_chat_completion` with the types of the openai package. Raises `PackageError` without it."""
        try:
            from openai.types.chat import ChatCompletion, ChatCompletionChunk
        except ImportError:
            raise PackageError("the openai package is not installed", "pip install openai") from None
        answer = Llama.create_chat_completion.__wrapped__(self, call)  # type: ignore[attr-defined]
        if call.stream:
            return (ChatCompletionChunk.model_validate(chunk) for chunk in answer)
        return ChatCompletion.model_validate(answer)

    @spelled_by(GenerateCall)
    def generate(self, call: GenerateCall) -> Iterator[int]:
        """The tokens that follow `tokens`, one by one; one that ends a text is the last. Nothing can be sent to it."""
        self._check_open()
        completion = call.completion(self._next_seed(None))
        request, _ = self._asking.completion(completion, completion.seed or 0)
        return self._tokens_of(self._updates(request, call.stopping_criteria))

    def _updates(self, request: Request, criteria: Criteria | None = None) -> Iterator[Update]:
        # a generator of this object, so that the model stays as long as somebody reads
        yield from updates(self._engine, request, criteria)

    def _tokens_of(self, answer: Iterator[Update]) -> Iterator[int]:
        for update in answer:
            if isinstance(update, Written):
                yield from update.tokens
            elif isinstance(update, Ended) and update.eog and self.token_eos() >= 0:
                yield self.token_eos()

    def set_seed(self, seed: int) -> None:
        """The seed that the next calls without one get theirs from."""
        with self._lock:
            self._seed = seed

    def _next_seed(self, seed: int | None) -> int:
        with self._lock:
            if seed is None:
                seed = -1 if self._seed == -1 else random.Random(self._seed).randint(0, 2**32)
            self._seed = seed
        return -1 if seed in (-1, RANDOM_SEED) else seed

    # Embeddings

    def embed(
        self,
        input: str | list[str],
        normalize: bool = False,
        truncate: bool = True,
        return_count: bool = False,
    ) -> Any:
        """One vector for a text, a list of them for a list; with `return_count` a pair with the number of tokens.

        Vectors are the mean over the tokens, of which `n_batch` count: longer texts are cut, or refused without
        `truncate`.
        """
        self._check_open()
        texts = [input] if isinstance(input, str) else input
        pooled = embedding.embed(self._engine, texts, normalize=normalize, limit=self.n_batch, truncate=truncate)
        vectors = pooled.vectors[0] if isinstance(input, str) else pooled.vectors
        return (vectors, pooled.n_tokens) if return_count else vectors

    def create_embedding(self, input: str | list[str], model: str | None = None) -> dict[str, Any]:
        """The embeddings of texts, as OpenAI's dict."""
        self._check_open()
        texts = [input] if isinstance(input, str) else input
        pooled = embedding.embed(self._engine, texts, normalize=False, limit=self.n_batch, truncate=True)
        return embedding.response(pooled, model or self.model_path)

    # Life

    def reset(self) -> None:
        """Nothing: calls leave no state that another one could see."""

    def set_cache(self, cache: Any) -> None:
        """Keep `cache` as the attribute of that name, and use none: the engine caches prompts by itself."""
        if cache is not None:
            tell("the cache is not used: the engine caches prompts by itself")
        self.cache = cache

    def close(self) -> None:
        """End what is being written and free the model, unless it was given as `engine`. Idempotent.

        That happens by itself when nobody has the model any more, and when the program ends.
        """
        self._free()

    def __enter__(self) -> Llama:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        if self.options.engine is not None:
            raise CallError("a Llama over an engine that was given cannot be pickled", "make it from a path")
        return {**self._given, "seed": self._seed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __getattr__(self, name: str) -> Any:
        raise refusal(name)

    def _check_open(self) -> None:
        if not self._free.alive:
            raise CallError("this Llama was closed", "make another one")
