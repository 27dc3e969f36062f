"""Refuses what browsers send for pages of other sites.

Such a page cannot read replies, for lack of CORS headers, but its simple requests arrive. It can
read them if its own name leads to this machine (DNS rebinding), which only `Host` tells.
"""

import re
import socket
from collections.abc import Mapping
from fnmatch import fnmatchcase

from fastapi import HTTPException

from bert_tf.serving.options import ServingOptions

_NAMES = (b"host", b"origin", b"sec-fetch-site", b"sec-fetch-mode")


class BrowserCheck:
    """Checks that requests are for a server that listens at an IP address."""

    def __init__(self, options: ServingOptions, address: str) -> None:
        self._allowed = (options.allowed_hosts or "").lower().split(",")
        self._own = [socket.gethostname().lower(), options.host.lower(), "localhost", "*.localhost"]
        self._checks_host = bool(options.allowed_hosts) or address.startswith(("127.", "::1"))

    def __call__(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> None:
        """Raises an HTTPException, status 403, if a request names or comes from another host.

        Its name counts only at a loopback address, or with `--allowed_hosts`.
        """
        host, origin, site, mode = (headers.get(x, b"").decode("latin-1").lower() for x in _NAMES)
        sender, name = _name(origin.partition("//")[2]), _name(host)
        is_address = name.startswith("[") or not name.strip("0123456789.")
        is_known = is_address or any(fnmatchcase(name, x) for x in self._own + self._allowed)
        if self._checks_host and not is_known and path != "/health":
            advice = "call it by an IP address or as localhost, or pass --allowed_hosts="
            raise HTTPException(403, f"The server has no host {name[:100]}: {advice}{name[:100]}")
        # What browsers say themselves also holds behind a proxy that changes `Host`.
        is_link = method == "GET" and mode == "navigate"
        is_allowed = sender and any(fnmatchcase(sender, x) for x in self._allowed)
        if is_link or is_allowed or site in ("same-origin", "none"):
            return
        if site == "cross-site" or origin not in ("", f"http://{host}", f"https://{host}"):
            problem = f"Pages of {origin[:100] or 'other sites'} may not call this server"
            raise HTTPException(403, f"{problem}, unless --allowed_hosts has their host")


def _name(host: str) -> str:
    return re.sub(r"\.?(:\d*)?$", "", host)
