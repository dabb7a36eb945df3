"""The figures of a snapshot in words, as the status line and the panel share them: the variants of each, the
longest first, none where there is nothing to say.
"""

from __future__ import annotations

from localspec.tui.render import styles
from localspec.tui.render.glyphs import Glyphs
from localspec.tui.render.line import Part
from localspec.tui.snapshot import Snapshot

_ENDS = {"length": "cut at the limit", "cancelled": "stopped", "failed": "failed"}
#: speed-up of an answer that speculation was worth it for, though it went off before the end
PAID = 1.03
_PHASES = {"idle": "ready", "reading": "reading the prompt", "writing": "writing"}


def rate(snapshot: Snapshot) -> list[Part]:
    """Tokens per second: now and mean while an answer is written, then the mean. What goes on, before there are any."""
    if not snapshot.n_steps:
        words = _PHASES.get(snapshot.phase) or _ENDS.get(snapshot.finish or "", "no answer")
        return [(words, styles.STRONG)]
    mean = f"{snapshot.mean_rate:.1f}"
    if snapshot.phase == "done":
        return [(f"{mean} tok/s", styles.STRONG)]
    now = f"{snapshot.rate:.1f} tok/s"
    return [(f"{now} (mean {mean})", styles.STRONG), (now, styles.STRONG)]


def speedup(snapshot: Snapshot, glyph: Glyphs) -> list[Part]:
    """The speed against plain decoding; an estimate always says that it is one."""
    if snapshot.speedup is None or snapshot.method == "plain":
        return []
    times = f"{snapshot.speedup:.2f}{glyph.times}"
    if snapshot.measured:
        return [(f"{times} plain (measured)", styles.VALUE), (f"{times} plain", styles.VALUE), (times, styles.VALUE)]
    return [(f"{times} plain (est.)", styles.VALUE), (f"{times} est.", styles.VALUE)]


def off(snapshot: Snapshot) -> list[Part]:
    """That there is no speculation, and why."""
    if snapshot.off is None:
        return []
    if snapshot.method == "plain" and snapshot.off.startswith("plain"):
        return [("no speculation", styles.LABEL), ("plain", styles.LABEL)]
    if snapshot.phase == "done" and (snapshot.speedup or 0.0) >= PAID:
        # of the whole answer "not faster" would be wrong
        return [("spec off at the end", styles.LABEL), ("spec off", styles.LABEL)]
    return [(f"spec off: {snapshot.off}", styles.WARNING), ("spec off", styles.WARNING)]


def lossy(snapshot: Snapshot, glyph: Glyphs) -> list[Part]:
    """That texts may lack the model's distribution, and how many tokens were let pass."""
    if snapshot.lossless:
        return []
    mark, n = glyph.forgiven, snapshot.n_forgiven
    return [
        (f"{mark} lossy ({snapshot.accept}): {n} token{'s' * (n != 1)} forgiven", styles.WARNING),
        (f"{mark} lossy: {n} forgiven", styles.WARNING),
        (f"{mark} lossy {n}", styles.WARNING),
        (f"{mark} lossy", styles.WARNING),
    ]


def drafting(snapshot: Snapshot, glyph: Glyphs) -> list[Part]:
    """The method, and the tree in use."""
    if not snapshot.method:
        return []
    method = (snapshot.method, styles.VALUE)
    if not snapshot.shape or snapshot.off is not None:
        return [method]
    return [(f"{snapshot.method} {shape(snapshot.shape, glyph)}", styles.VALUE), method]


def shape(name: str, glyph: Glyphs) -> str:
    """The name of a tree as this set of glyphs can write it."""
    return name.replace("×", "x").encode("ascii", "replace").decode() if glyph.ascii_only else name


def per_step(snapshot: Snapshot) -> list[Part]:
    """Tokens per step, where steps may have more than one."""
    if not snapshot.n_drafted:
        return []
    figure = f"{snapshot.tokens_per_step:.2f}"
    return [(f"{figure} tok/step", styles.VALUE), (f"{figure}/step", styles.VALUE)]


def context(snapshot: Snapshot) -> list[Part]:
    """How full the context window is."""
    if not snapshot.n_ctx:
        return []
    used = f"ctx {snapshot.n_used}/{snapshot.n_ctx}"
    return [(used, styles.WARNING if snapshot.n_used > 0.9 * snapshot.n_ctx else styles.LABEL)]


def finish(snapshot: Snapshot) -> list[Part]:
    """Why an answer ended, unless the model meant it to."""
    words = _ENDS.get(snapshot.finish or "") if snapshot.phase == "done" else None
    return [(words, styles.WARNING)] if words and snapshot.n_steps else []
