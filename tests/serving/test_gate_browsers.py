"""Which requests of browsers are refused; `test_page.py` has those of a real one."""

import socket

import pytest
from fastapi import HTTPException

from bert_tf.serving.gate import BrowserCheck
from bert_tf.serving.options import ServingOptions

PORT = 8501
HERE = f"localhost:{PORT}"
LINK = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}


def is_allowed(method="POST", path="/embed", address="127.0.0.1", allowed=None, **headers):
    names = {name.replace("_", "-").encode(): x.encode() for name, x in headers.items()}
    check = BrowserCheck(ServingOptions(allowed_hosts=allowed), address)
    try:
        check(method, path, names)
    except HTTPException as error:
        return (error.status_code, "allowed_hosts" in error.detail) != (403, True)
    return True


@pytest.mark.parametrize(
    ("origin", "host", "expected"),
    [
        (f"http://{HERE}", HERE, True),
        ("http://localhost:3000", HERE, False),
        (f"http://127.0.0.1:{PORT}", HERE, False),
        ("http://LOCALHOST", "localhost", True),
        ("https://localhost", "localhost", True),  # a proxy that adds TLS
        ("https://localhost:8443", "localhost", False),
        (f"http://[::1]:{PORT}", f"[::1]:{PORT}", True),
        ("http://evil.example", HERE, False),
        ("http://localhost.evil.example", HERE, False),
        ("null", HERE, False),
        ("null", "", False),
        ("http://evil.example:x", HERE, False),
        ("http://[", HERE, False),
    ],
)
def test_origins(origin, host, expected):
    assert is_allowed(origin=origin, host=host) == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, True),  # no browser
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "cross-site", "origin": f"http://{HERE}"}, False),
        ({"sec-fetch-site": "same-site", "origin": "http://localhost:3000"}, False),
        ({"sec-fetch-site": "none"}, True),
        # A proxy that changes `Host`.
        ({"sec-fetch-site": "same-origin", "origin": "https://models.example"}, True),
        # A form of another site, and a link.
        ({**LINK, "origin": "http://evil.example"}, False),
        ({**LINK, "method": "GET"}, True),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "method": "GET"}, False),
    ],
)
def test_what_browsers_say(headers, expected):
    for host in (HERE, f"127.0.0.1:{PORT}"):
        assert is_allowed(**{"host": host, **headers}) == expected


@pytest.mark.parametrize(
    "host",
    [HERE, "Localhost.", "x.localhost", "127.0.0.1", f"[::1]:{PORT}", "10.0.0.1:1", "", "machine"],
)
def test_own_names(host, monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "Machine")
    assert is_allowed(host=host)


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "other:80", "1.2.x"])
def test_other_names(host):
    assert not is_allowed(host=host)
    assert not is_allowed(host=host, method="GET", path="/")
    assert is_allowed(host=host, path="/health")
    assert is_allowed(host=host, address="192.168.0.2")
    assert is_allowed(host=host, address="0.0.0.0")
    assert not is_allowed(host=host, address="::1")
    assert not is_allowed(host=host, address="0.0.0.0", allowed="a.example")


def test_allowed_hosts():
    site = "models.example"
    for allowed in (site, f"a,{site.upper()}", "*.example", "*"):
        assert is_allowed(allowed=allowed, host=f"{site}:81")
        # A proxy that changes `Host`, and a page that may call the server.
        headers = {"host": HERE, "origin": f"https://{site}", "sec-fetch-site": "cross-site"}
        assert is_allowed(allowed=allowed, **headers)
    assert not is_allowed(allowed=site, host=f"x.{site}")
    assert not is_allowed(allowed=site, host=HERE, origin="http://evil.example")
