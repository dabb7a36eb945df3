"""Which names the server is known by, and which web pages may call it.

A page that an attacker's name server points at this machine still sends the attacker's name as `Host`: that is how DNS
rebinding shows. Addresses cannot be rebound, so private ones are let pass.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from localspec.errors import UsageError

_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?)\.?)(?::\d{1,5})?", re.IGNORECASE)
_SUFFIXES = (".localhost", ".local", ".internal")
ANY = "*"


def is_loopback(host: str) -> bool:
    """Whether a server bound to `host` is reached from this machine alone."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class HostRule:
    """The names and addresses that a `Host` header may have. `names` are those beside the machine's own."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        machine = socket.gethostname().lower()
        self._names = {"localhost", machine, machine.partition(".")[0]} | {name.lower() for name in names}
        self._names.discard("")

    def allows(self, header: str) -> bool:
        match = _HOST.fullmatch(header)
        if match is None:
            return False
        name = (match[1] or match[2]).lower()
        if name in self._names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return name.endswith(_SUFFIXES)
        return address.is_loopback or address.is_private


class OriginRule:
    """The pages that may call: those of the server itself, and the `listed` ones."""

    def __init__(self, listed: Iterable[str] = ()) -> None:
        self._listed = {origin.lower() for origin in listed}

    def allows(self, origin: str, host: str) -> bool:
        """Whether a page of `origin` may call a server that it reaches as `host`."""
        origin = origin.lower()
        own = origin in (f"http://{host.lower()}", f"https://{host.lower()}")
        return own or origin in self._listed or ANY in self._listed


def check_origin(origin: str) -> str:
    """The origin as browsers write it. Raises `UsageError` for what is none."""
    if origin == ANY:
        return origin
    try:
        parts = urlsplit(origin)
        usable = bool(parts.scheme and parts.netloc and parts.path in ("", "/") and not parts.query)
    except ValueError:
        usable = False
    if not usable or "@" in origin or "*" in origin:
        raise UsageError(f"{origin!r} is not the origin of a page", "write it like http://localhost:3000")
    return f"{parts.scheme}://{parts.netloc}".lower()
