"""robots.txt, with the examples that RFC 9309 gives and what servers really send."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.deep_research.serving.web.robots import OPEN, Rules, parse


def allows(text: str, path: str, agent: str = "agentic-rl-bench") -> bool:
    return parse(text, agent).allows(path)


RFC_EXAMPLE = """
User-Agent: *
Disallow: *.gif$
Disallow: /example/
Allow: /publications/

User-Agent: foobot
Disallow:/
Allow:/example/page.html
Allow:/example/allowed.gif

User-Agent: barbot
User-Agent: bazbot
Disallow: /example/page.html

User-Agent: quxbot
"""


@pytest.mark.parametrize(
    ("agent", "path", "allowed"),
    [
        ("foobot", "/", False),
        ("foobot", "/example/page.html", True),
        ("foobot", "/example/allowed.gif", True),
        ("barbot", "/example/page.html", False),
        ("bazbot", "/example/page.html", False),
        ("bazbot", "/example/other.html", True),
        ("quxbot", "/example/page.html", True),
        ("otherbot", "/a/b.gif", False),
        ("otherbot", "/a/b.gif?x", True),
        ("otherbot", "/example/page.html", False),
        ("otherbot", "/publications/x", True),
    ],
)
def test_the_rfcs_simple_example(agent: str, path: str, allowed: bool) -> None:
    assert allows(RFC_EXAMPLE, path, agent) is allowed


def test_the_longest_rule_wins_and_allow_wins_a_tie() -> None:
    text = "user-agent: *\nallow: /example/page/\ndisallow: /example/page/disallowed.gif\n"
    assert allows(text, "/example/page/allowed.gif")
    assert not allows(text, "/example/page/disallowed.gif")
    assert allows("user-agent: *\ndisallow: /a\nallow: /a\n", "/a")
    assert allows("user-agent: *\ndisallow: /\nallow: /open/\n", "/open/x")  # the first match would close it


@pytest.mark.parametrize(
    ("rule", "path", "matches"),
    [
        ("/fish", "/fish.html", True),
        ("/fish", "/Fish", False),
        ("/fish*", "/fishheads/yummy", True),
        ("/fish/", "/fish", False),
        ("/*.php", "/index.php?p=1", True),
        ("/*.php$", "/index.php?p=1", False),
        ("/*.php$", "/a/index.php", True),
        ("/fish*.php", "/fishheads/x.php?y", True),
        ("/$", "/", True),
        ("/$", "/a", False),
        ("/a*b*c$", "/a-b-c-b-c", True),
        ("/a*b*c$", "/a-c-b", False),
        ("/ab$", "/abab", False),
        ("*", "/anything", True),
        ("/a%3cd.html", "/a%3Cd.html", True),
        ("/%7ejoe/", "/~joe/index.html", True),
        ("/caf%C3%A9", "/café/x", True),
        ("/a%2Fb", "/a/b", False),
        ("/x%2A", "/xyz", False),
    ],
)
def test_patterns(rule: str, path: str, matches: bool) -> None:
    assert allows(f"User-agent: *\nDisallow: {rule}\n", path) is not matches


def test_groups_of_one_name_are_joined_and_ours_replaces_the_general_one() -> None:
    text = """\ufeffUser-agent: Agentic-RL-Bench/2.0 # us
Disallow: /a

User-agent: *
Disallow: /

User-agent: agentic-rl-bench
Crawl-delay: 2.5
Disallow: /b
"""
    rules = parse(text, "agentic-rl-bench")
    assert [rules.allows(path) for path in ("/a", "/b", "/c")] == [False, False, True]
    assert rules.crawl_delay_s == 2.5


@pytest.mark.parametrize("text", ["", "<html>not found</html>", "Disallow: /", "User-agent: *\nDisallow:\n", "\0\1\2"])
def test_what_closes_nothing(text: str) -> None:
    assert allows(text, "/x")


def test_crawl_delays_that_are_none() -> None:
    for value in ("soon", "-1", "nan", "inf", ""):
        assert parse(f"User-agent: *\nCrawl-delay: {value}\n", "a").crawl_delay_s is None


def test_a_closed_host_is_closed() -> None:
    assert not Rules(closed="no answer").allows("/")
    assert OPEN.allows("/")


def test_many_stars_take_no_time() -> None:
    assert allows("User-agent: *\nDisallow: /" + "*a" * 5_000 + "$\n", "/" + "a" * 4_000 + "b")


@given(st.text(max_size=300), st.text(max_size=40))
def test_nothing_in_a_file_or_path_is_an_error(text: str, path: str) -> None:
    parse("User-agent: *\n" + text, "agentic-rl-bench").allows(path)
