"""Refuses what browsers send for pages of other sites.

Such a page cannot read replies, for lack of CORS headers, but its simple requests arrive. It can
read them if its own name leads to this machine (DNS rebinding), which only `Host` tells.
"""

import fnmatch
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

from fastapi import HTTPException

from bert_tf.serving.options import ServingOptions

_PORTS = {"http": 80, "https": 443}
_NAMES = (b"host", b"origin", b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest")


class BrowserCheck:
    """Checks that requests are for a server that listens at an IP address."""

    def __init__(self, options: ServingOptions, address: str) -> None:
        self._allowed = [_parse(x)[0] for x in (options.allowed_hosts or "").split(",") if x]
        self._own = [socket.gethostname().lower(), options.host.lower(), "localhost", "*.localhost"]
        self._checks_host = bool(self._allowed) or address.startswith(("127.", "::1"))

    def __call__(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> None:
        """Raises an HTTPException with status 403 if a request is for another host, or by its page.

        The former only at a loopback address, or with `--allowed_hosts`.
        """
        host, origin, site, mode, target = (headers.get(x, b"").decode("latin-1") for x in _NAMES)
        name, (sender, _) = _parse(host)[0], _parse(origin)
        is_address = ":" in name or not name.strip("0123456789.")
        is_known = is_address or _matches(name, self._own + self._allowed)
        if self._checks_host and not is_known and path != "/health":
            advice = "call it by an IP address or as localhost, or pass --allowed_hosts="
            raise HTTPException(403, f"The server has no host {name[:100]}: {advice}{name[:100]}")
        is_link = method == "GET" and mode == "navigate" and target in ("", "document")
        # What browsers say themselves also holds behind a proxy that changes `Host`.
        if is_link or site in ("same-origin", "none") or _matches(sender, self._allowed):
            return
        is_same = _parse(origin) == _parse(host, origin.partition("//")[0])
        if site == "cross-site" or (origin and not is_same):
            problem = f"Pages of {origin[:100] or 'other sites'} may not call this server"
            raise HTTPException(403, f"{problem}, unless --allowed_hosts has their host")


def _matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _parse(address: str, scheme: str = "") -> tuple[str, int | None]:
    """Returns name and port of an origin or a `Host`."""
    try:
        parts = urlsplit(address if "//" in address else f"{scheme}//{address}")
        return (parts.hostname or "").removesuffix("."), parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return "?", None
