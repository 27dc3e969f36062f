"""Refuses what browsers send for pages of other sites.

Such a page cannot read a reply, for lack of CORS headers, but its simple requests arrive. It can
read replies if its own name leads to this machine (DNS rebinding), which only `Host` tells.
"""

import fnmatch
import ipaddress
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

from fastapi import HTTPException

from bert_tf.serving.options import ServingOptions

_PORTS = {"http": 80, "https": 443}
_NAMES = (b"host", b"origin", b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest")


class BrowserCheck:
    """Raises an HTTPException with status 403 if a request is not meant for this server.

    Args:
        options: those of the server.
        address: IP address it listens at. Requests must be to a known host if that is a loopback
            address, or with `allowed_hosts`.
    """

    def __init__(self, options: ServingOptions, address: str) -> None:
        self._allowed = [_name(x) for x in (options.allowed_hosts or "").split(",") if x]
        self._own = {"", "localhost", socket.gethostname().lower(), options.host.lower()}
        self._checks_host = bool(self._allowed) or ipaddress.ip_address(address).is_loopback

    def __call__(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> None:
        """Checks the headers of a request."""
        host, origin, site, mode, target = (headers.get(x, b"").decode("latin-1") for x in _NAMES)
        if self._checks_host and path != "/health" and not self._is_known(name := _name(host)):
            advice = "call it by an IP address or as localhost, or pass --allowed_hosts="
            raise HTTPException(403, f"The server has no host {name[:100]}: {advice}{name[:100]}")
        is_link = method == "GET" and mode == "navigate" and target in ("", "document")
        # What browsers say themselves also holds behind a proxy that changes `Host`.
        if is_link or site in ("same-origin", "none") or self._allows(_name(origin)):
            return
        if site == "cross-site" or (origin and not _is_same(origin, host)):
            problem = f"Pages of {origin[:100] or 'other sites'} may not call this server"
            raise HTTPException(403, f"{problem}, unless --allowed_hosts has their host")

    def _allows(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self._allowed)

    def _is_known(self, name: str) -> bool:
        if name in self._own or name.endswith(".localhost") or self._allows(name):
            return True
        try:
            return bool(ipaddress.ip_address(name))
        except ValueError:
            return False


def _name(address: str) -> str:
    """Returns the name in an origin or `Host`, in lower case; "?" if there is none."""
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        return (parts.hostname or "?").removesuffix(".") if address else ""
    except ValueError:
        return "?"


def _is_same(origin: str, host: str) -> bool:
    """Returns whether an origin has the host and the port of `Host`."""
    try:
        scheme = urlsplit(origin).scheme
        one, other = (urlsplit(x) for x in (origin, f"{scheme}://{host}"))
        ports = {x.port or _PORTS.get(scheme) for x in (one, other)}
        return bool(one.hostname) and one.hostname == other.hostname and len(ports) == 1
    except ValueError:
        return False
