"""What servers tell of a loaded model."""

from __future__ import annotations

from llama_cpp import llama_cpp as L

from localspec.engine.model import Model
from localspec.gguf_check import file_type_name
from localspec.opening import describe
from localspec.serving.api import Facts
from localspec.session import Session


def facts_of(session: Session) -> Facts:
    """The facts of a session whose context has a sequence for each slot."""
    model, info = session.model, describe(session)
    file_type = model.metadata.get("general.file_type", "")
    return Facts(
        name=session.name,
        path=model.path,
        description=model.description,
        size=model.size_bytes,
        n_params=model.n_params,
        n_vocab=model.n_vocab,
        n_embd=model.n_embd,
        n_ctx=info.n_ctx,
        n_ctx_train=model.n_ctx_train,
        n_slots=session.ctx.n_seq_max,
        architecture=model.arch,
        quant=(file_type_name(int(file_type)) if file_type.isdecimal() else None) or "",
        created=int(model.path.stat().st_mtime),
        mode=info.mode,
        device=info.device,
        method=info.method,
        methods=info.methods,
        bos=model.special_text(model.bos),
        eos=model.special_text(model.eos),
        chat_template=model.chat_template or "",
    )


def fim_tokens(model: Model) -> tuple[int, int, int] | None:
    """The tokens before a prefix, a suffix and the middle to be written between them; None for a model that was not
    trained to fill in."""
    vocab = model.vocab
    tokens = L.llama_vocab_fim_pre(vocab), L.llama_vocab_fim_suf(vocab), L.llama_vocab_fim_mid(vocab)
    return None if min(tokens) < 0 else tokens
