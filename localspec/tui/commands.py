"""The actions of the chat in Textual's command palette."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider

from localspec.tui.keys import ACTIONS, Action, key_text, keys_of


class ActionsProvider(Provider):
    """All actions with their keys, found by name, sentence and id. The app may say in `chosen_keys` which keys a person
    chose; it runs what is picked as `action_<id>`."""

    async def discover(self) -> Hits:
        for action, help in self._actions():
            yield DiscoveryHit(action.text, partial(self.app.run_action, action.id), text=action.text, help=help)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for action, help in self._actions():
            score = max(matcher.match(action.text), matcher.match(action.id.replace("_", " ")))
            if score > 0:
                run = partial(self.app.run_action, action.id)
                yield Hit(score, matcher.highlight(action.text), run, text=action.text, help=help)

    def _actions(self) -> Iterator[tuple[Action, str]]:
        chosen: Mapping[str, Sequence[str]] = getattr(self.app, "chosen_keys", {})
        keys = keys_of(chosen)
        for action in ACTIONS:
            if action.scope == "anywhere":
                yield action, ", ".join(map(key_text, keys[action.id])) or action.group
