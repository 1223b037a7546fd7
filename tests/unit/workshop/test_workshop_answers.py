"""The workshop's server: its figures are `bench simulate`'s, and what it answers to whom."""

import http.client
import itertools
import json
import math
import socket
import struct
import threading
from http import HTTPStatus

import pytest

from harness.cli import call
from harness.cli.simulate import WORKSHOP
from harness.protocol.errors import SpecError
from reports.workshop.answers import (
    MODES,
    SLIDERS,
    SPREADS,
    UNBOUNDED,
    Abandoned,
    Setting,
    base_of,
    curve,
    point,
)
from reports.workshop.server import Server, _Handler
from results.planner.sweep import cells, run


@pytest.fixture(scope="module")
def asked():
    """Asks a server: path -> (status, headers, body)."""
    server = Server(0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()

    def ask(path, host=None):
        connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
        connection.request("GET", path, headers={"Host": host} if host else {})
        reply = connection.getresponse()
        body = reply.read()
        connection.close()
        return reply.status, reply.headers, body

    yield ask
    server.shutdown()
    server.server_close()
    thread.join(10)


def test_the_sliders_begin_at_the_workshop_of_the_command_line():
    base = base_of(Setting.of({}))
    assert {name: base[name] for name in WORKSHOP} == WORKSHOP
    assert {slider.name for slider in SLIDERS} < set(Setting.__dataclass_fields__)
    for slider in SLIDERS:
        assert slider.low <= slider.value <= slider.high


@pytest.mark.parametrize("query", [{}, {"sigma": "0.3", "workers": "128", "max_staleness": "2", "seed": "7"}])
def test_a_point_is_the_row_of_bench_simulate(query):
    found = point(Setting.of(query))
    rows = {row["mode"]: row for row in run(cells(base_of(Setting.of(query)), {"mode": list(MODES)}))}
    for mode in MODES:
        assert {name: found["modes"][mode][name] for name in rows[mode]} == rows[mode]
        shares = [share for _, share in found["modes"][mode]["staleness"]["at_start"]]
        assert sum(shares) == pytest.approx(1)
    assert found["simulated"] is True


def test_the_batch_is_the_first_synchronous_one():
    found = point(Setting.of({"batch_size": "32", "workers": "32"}))
    bars = found["batch"]["bars"]
    assert len(bars) == 32
    assert [end for _, end, _ in bars] == sorted(end for _, end, _ in bars)
    assert found["batch"]["ends_s"] == bars[-1][1]
    idle = 1 - sum(end - start for start, end, _ in bars) / (32 * bars[-1][1])
    assert found["batch"]["idle_ratio"] == pytest.approx(idle)


def test_the_curve_has_a_point_for_every_spread_whatever_the_spread_slider_says():
    found = curve(Setting.of({"sigma": "0.5"}))
    assert found == curve(Setting.of({"sigma": "1.5"}))
    for mode in MODES:
        assert [one["sigma"] for one in found["lines"][mode]] == list(SPREADS)
    at_one = found["lines"]["async"][SPREADS.index(1.0)]
    assert at_one["updates_per_hour"] == point(Setting.of({}))["modes"]["async"]["updates_per_hour"]
    assert at_one["long_run"] == pytest.approx(109.2, abs=0.05)


HEAVY = {"median": "1", "workers": "256", "batch_size": "1", "update_s": "2"}  # 921,600 trajectories an hour


def test_a_quick_look_is_less_than_an_hour_only_where_an_hour_takes_long():
    light = Setting.of({"quick": "1", "workers": "32"})
    assert light == Setting.of({"workers": "32"})
    assert point(light)["whole"] is True
    own = Setting.of({"quick": "1"})  # as the page opens: the hour, with fewer points on the curve
    assert (own.horizon_s, own.command) == (3600.0, Setting.of({}).command)
    assert set(own.spreads) < set(SPREADS)

    quick, whole = Setting.of({**HEAVY, "quick": "1"}), Setting.of(HEAVY)
    assert (whole.horizon_s, whole.spreads) == (3600.0, SPREADS)
    assert quick.starts(quick.horizon_s) < 13_000
    assert 0 < len(quick.spreads) < len(SPREADS)
    assert set(quick.spreads) < set(SPREADS)
    found = curve(quick)
    assert (found["whole"], found["horizon_s"]) == (False, quick.horizon_s)
    slow = Setting.of({**HEAVY, "quick": "1", "update_s": "120"})
    assert slow.horizon_s >= 240  # else no update would end in it


@pytest.mark.parametrize("more", [{}, {"update_s": "30"}, {"workers": "255", "median": "3"}])
def test_a_quick_looks_command_gives_its_figures(more, capsys):
    quick = Setting.of({**HEAVY, **more, "quick": "1"})
    assert quick.quick
    found = point(quick)["modes"]

    for mode in MODES:
        assert call([*quick.command.split()[1:], "--mode", mode, "--json"]) == 0
        row = json.loads(capsys.readouterr().out)
        assert row["digest"] == found[mode]["digest"]
        assert row["window_s"] == quick.horizon_s


def test_an_answer_that_nobody_waits_for_is_not_finished():
    asked = []

    def gone():
        asked.append(True)
        return len(asked) > 3

    with pytest.raises(Abandoned):
        curve(Setting.of({"seed": "77"}), gone)
    assert len(asked) == 4


def test_a_closed_connection_is_noticed_and_a_waiting_one_is_not():
    handler = object.__new__(_Handler)
    handler.connection, browser = socket.socketpair()
    with handler.connection:
        assert not handler._gone()
        browser.sendall(b"GET")
        assert not handler._gone()  # its next question
        assert handler.connection.recv(3) == b"GET"
        browser.close()
        assert handler._gone()


def test_the_curve_marks_what_is_unstable_at_every_slow_update():
    for update_s in ("60", "95", "120"):
        line = curve(Setting.of({"update_s": update_s}))["lines"]
        assert all(one["unstable"] is (20 * math.exp(one["sigma"] ** 2 / 2) < float(update_s)) for one in line["async"])
        assert not any(one["unstable"] for one in line["synchronous"])
        assert point(Setting.of({"update_s": update_s}))["modes"]["async"]["unstable"] is True


def test_fewer_workers_than_trajectories_have_several_each():
    batch = point(Setting.of({"workers": "8", "batch_size": "32"}))["batch"]

    assert batch["workers"] == 8
    assert {worker for _, _, worker in batch["bars"]} == set(range(8))
    for worker in range(8):  # one after the other, with nothing between
        own = sorted((start, end) for start, end, at in batch["bars"] if at == worker)
        assert own[0][0] == 0
        assert all(one[1] == pytest.approx(other[0]) for one, other in itertools.pairwise(own))


def test_a_command_is_given_that_says_the_same():
    setting = Setting.of({"median": "30", "max_staleness": "1", "seed": "3"})
    words = setting.command.split()
    assert words[:2] == ["bench", "simulate"]
    assert words[words.index("--median") + 1] == "30"
    assert words[words.index("--max-staleness") + 1] == "1"
    assert words[words.index("--seed") + 1] == "3"
    assert Setting.of({"max_staleness": str(UNBOUNDED)}).max_staleness is None


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"sigma": "9"}, "allowed is 0 to 1.5"),
        ({"sigma": "nan"}, "allowed is"),
        ({"workers": "many"}, "not a number"),
        ({"speed": "1"}, "speed: unknown"),
        ({"seed": "-1"}, "seed = -1"),
        ({"seed": "9" * 30}, "seed = "),
        ({"seed": "\u00b2"}, "seed = "),
        ({"quick": "yes"}, "quick = yes"),
    ],
)
def test_wrong_settings_are_named(query, said):
    with pytest.raises(SpecError, match=said):
        Setting.of(query)


def test_the_page_and_its_files(asked):
    for path, kind in (("/", "text/html"), ("/workshop.js", "text/javascript"), ("/workshop.css", "text/css")):
        status, headers, body = asked(path)
        assert status == 200
        assert headers["Content-Type"].startswith(kind)
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert len(body) > 500
    assert b"http://" not in asked("/")[2]
    assert b"https://" not in asked("/")[2]


def test_questions_over_http(asked):
    status, _, body = asked("/point?sigma=0.3")
    assert status == 200
    assert json.loads(body) == json.loads(json.dumps(point(Setting.of({"sigma": "0.3"}))))
    status, _, body = asked("/curve?sigma=7")
    assert status == 400
    assert "allowed is 0 to 1.5" in json.loads(body)["error"]
    assert asked("/../answers.py")[0] == 404
    assert asked("/nothing")[0] == 404


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "localhost:80"])
def test_a_browser_leaves_out_the_port_when_it_is_80(asked, host):
    assert asked("/workshop.css", host)[0] == 200


def test_an_address_that_is_none_is_refused():
    with Server(0) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        with socket.create_connection(server.server_address[:2], timeout=60) as connection:
            connection.sendall(b"GET http://[ HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            assert connection.recv(1_000).startswith(b"HTTP/1.1 400 ")
        thread.join(10)


def test_a_connection_that_is_reset_is_no_traceback(capfd):
    """As a browser does that gives an answer up."""
    with Server(0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        with socket.create_connection(server.server_address[:2], timeout=60) as connection:
            connection.sendall(b"GET /workshop.css HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert connection.recv(1_000)  # it is served, and waits for the next request
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with socket.create_connection(server.server_address[:2], timeout=60) as after:
            after.sendall(b"GET /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            assert after.recv(1_000).startswith(b"HTTP/1.1 404 ")
        for other in [one for one in threading.enumerate() if "process_request" in one.name]:
            other.join(60)
        server.shutdown()
        thread.join(60)
    assert "Traceback" not in capfd.readouterr().err


def test_no_answer_waits_for_an_acknowledgement():
    """Head and body are sent one after the other: the second may not wait (RFC 896) until the first was received."""
    accepted = []

    class Noted(Server):
        def get_request(self):
            found = super().get_request()
            accepted.append(found[0])
            return found

    with Noted(0) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        with socket.create_connection(server.server_address[:2], timeout=60) as connection:
            connection.sendall(b"GET /workshop.css HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert connection.recv(1_000).startswith(b"HTTP/1.1 200 ")  # and it is kept open
            assert accepted[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        thread.join(10)


def test_a_defect_of_the_server_is_told(capfd):
    with Server(0) as server:
        try:
            raise ValueError("a defect")
        except ValueError:
            server.handle_error(None, ("127.0.0.1", 1))
    assert "a defect" in capfd.readouterr().err


@pytest.mark.parametrize("write", [0, 1])
def test_a_browser_that_went_away_is_no_error(write):
    """Neither when the headers are sent, nor when the body is."""

    class Gone:
        def __init__(self):
            self.left = write

        def write(self, _):
            if not self.left:
                raise ConnectionResetError
            self.left -= 1

    handler = object.__new__(_Handler)
    handler.request_version, handler.requestline, handler.wfile = "HTTP/1.1", "GET / HTTP/1.1", Gone()
    handler._answer(HTTPStatus.OK, "text/plain", b"x")
    assert handler.close_connection is True


@pytest.mark.parametrize("host", ["evil.example:80", "127.0.0.1.evil.example:1", "0.0.0.0:1"])
def test_another_name_for_this_machine_is_not_served(asked, host):
    assert asked("/point", host)[0] == 421
