"""Who is let in: the token, the names, the origins, the sizes, the headers."""

import pytest
from starlette.testclient import TestClient

from scalewise.ui.background import Cache
from scalewise.ui.guard import HEADERS, MAX_BODY, Guard, local_hosts
from scalewise.ui.server import COOKIE, HEADER, create

TOKEN = "a-token-of-the-tests"
BASE = "http://127.0.0.1:8765"


@pytest.fixture
def stranger(app, client):
    """The same server, asked by somebody without the token."""
    return TestClient(app, base_url=BASE, follow_redirects=False)


PATHS = ["/api/estimate", "/api/catalog", "/api/openapi.json", "/api/evidence", "/api/nothing"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_without_the_token_nothing_is_answered(stranger, path, method):
    status = stranger.request(method, path).status_code
    assert status in (401, 405)
    # A method that a path does not have is refused before anything is looked at.
    assert status == 401 or (path, method) not in {
        ("/api/estimate", "POST"),
        ("/api/catalog", "GET"),
    }


@pytest.mark.parametrize("given", ["", "wrong", TOKEN[:-1], TOKEN + "x", "\u00e4"])
def test_a_wrong_token_is_no_token(stranger, given):
    response = stranger.post("/api/estimate", headers={HEADER: given.encode()}, json={})
    assert response.status_code == 401
    assert response.json()["hint"] == "open the address that `scalewise ui` printed"


def test_the_address_lets_the_browser_in_and_loses_its_token(stranger):
    response = stranger.get(f"/?token={TOKEN}&n=64")
    assert response.status_code == 303
    assert response.headers["location"] == "/?n=64"
    cookie = response.headers["set-cookie"]
    # With the port, so that two servers on one machine do not lock each other out.
    assert f"{COOKIE}_8765={TOKEN}" in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    stranger.cookies.set(f"{COOKIE}_8765", TOKEN)
    assert stranger.post("/api/estimate", json={}).status_code == 200
    assert stranger.get("/?n=64").status_code == 200


def test_a_browser_that_comes_from_a_file_keeps_its_cookie(stranger):
    """A strict cookie is left out of redirects of another site: the page is opened from here."""
    headers = {"sec-fetch-site": "cross-site"}
    response = stranger.get(f"/?token={TOKEN}&n=64&on=a%22b", headers=headers)
    assert response.status_code == 200
    assert f"{COOKIE}_8765={TOKEN}" in response.headers["set-cookie"]
    assert 'http-equiv="refresh" content="0; url=/?n=64&amp;on=a%22b"' in response.text
    assert TOKEN not in response.text


def test_who_may_not_ask_does_not_stay(stranger):
    assert stranger.get("/api/catalog").headers["connection"] == "close"
    assert stranger.get("/", headers={"host": "evil.example"}).headers["connection"] == "close"


def test_the_page_is_locked_without_it(stranger):
    assert stranger.get("/").status_code == 401
    assert "scalewise ui" in stranger.get("/?token=wrong").text


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "127.0.0.1:1", "127.0.0.1.evil.example:8765", ""]
)
def test_other_names_are_not_answered(client, host):
    assert client.get("/api/catalog", headers={"host": host}).status_code == 403
    assert client.get("/", headers={"host": host}).status_code == 403


@pytest.mark.parametrize("host", local_hosts(8765))
def test_the_names_of_loopback_are(client, host):
    assert client.get("/api/openapi.json", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1"])
def test_scripts_of_other_sites_are_not_answered(client, origin):
    response = client.post("/api/estimate", json={}, headers={"origin": origin})
    assert response.status_code == 403


def test_our_own_scripts_are(client):
    assert client.post("/api/estimate", json={}, headers={"origin": BASE}).status_code == 200


def test_large_requests_are_refused(client):
    assert client.post("/api/estimate", content=b" " * (MAX_BODY + 1)).status_code == 413

    def parts():
        for _ in range(MAX_BODY // 1000 + 2):
            yield b" " * 1000

    # Without a length they are cut off while they come in.
    assert client.post("/api/estimate", content=parts()).status_code == 400


@pytest.mark.parametrize("path", ["/", "/api/catalog", "/static/main.js", "/nothing"])
def test_headers_of_safety_are_everywhere(client, path):
    response = client.get(path)
    for name, value in HEADERS.items():
        assert response.headers[name] == value


def test_the_policy_allows_no_script_from_elsewhere(client):
    policy = dict(
        part.strip().split(" ", 1) for part in HEADERS["content-security-policy"].split(";")
    )
    assert policy["script-src"] == "'self'"
    assert policy["default-src"] == "'none'"
    text = client.get("/").text
    # The only block without a source is data, which no browser runs.
    assert text.count("<script") == 2
    assert 'type="application/json" id="first"' in text


def test_what_is_asked_cannot_break_out_of_the_page(client):
    text = client.get("/", params={"model": "</script><script>alert(1)</script>"}).text
    assert "<script>alert" not in text
    assert "&lt;/script&gt;" in text or "u003c" in text


@pytest.mark.parametrize("path", ["/static/../server.py", "/static/%2e%2e/server.py", "/static/"])
def test_only_static_files_are_served(client, path):
    assert client.get(path).status_code == 404


def test_no_cache_keeps_answers(client):
    assert client.get("/api/catalog").headers["cache-control"] == "no-store"
    assert client.get("/").headers["cache-control"] == "no-store"


def test_an_exposed_server_answers_to_addresses_but_not_to_names():
    guard = Guard(None, hosts=("box:8765",), exposed=True)
    assert guard._allowed("box:8765")
    assert guard._allowed("192.168.1.7:8765")
    assert guard._allowed("[fe80::1]:8765")
    assert not guard._allowed("evil.example:8765")
    assert not Guard(None, hosts=(), exposed=False)._allowed("192.168.1.7:8765")


def test_an_exposed_server_keeps_the_token():
    app = create(token=TOKEN, hosts=("box:80",), exposed=True)
    stranger = TestClient(app, base_url="http://10.0.0.7:8765")
    assert stranger.post("/api/estimate", json={}).status_code == 401


def test_the_cache_stays_within_its_size():
    cache = Cache(most_bytes=10_000)
    for place in range(100):
        cache.put(("x", str(place).encode()), b"y" * 1000)
    assert 1 < len(cache) < 10
    assert cache.get(("x", b"99")) == b"y" * 1000
    assert cache.get(("x", b"0")) is None
    cache.put(("x", b"large"), b"y" * 9000)
    assert cache.get(("x", b"large")) is None
