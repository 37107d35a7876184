"""A round as a page."""

from html.parser import HTMLParser

from tests.campaign.timeline import Event, Roles, Round, page

ROUND = Round(
    title="seed 7, round 0: strict",
    violations=["message 3 was acknowledged; it is <nowhere>"],
    events=[
        Event(100.0, "kill_master", "fault"),
        Event(100.1, "kill -9 b1"),
        Event(103.0, "healed", "healed"),
        Event(104.0, "isolate", "fault"),
    ],
    roles=[Roles(99.0, 1, 1, frozenset({1, 2, 3})), Roles(101.0, 2, 2, frozenset({2, 3}))],
    acknowledged=[99.5, 99.6, 102.0, 110.0],
    lost=[99.6],
)


class Read(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.titles: list[str] = []
        self.tags: list[str] = []
        self.attributes: dict[str, str | None] = {}
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= attrs

    def handle_data(self, data: str) -> None:
        if self.tags[-1] == "title":
            self.titles.append(data)
        self.text += data


def read(shown: Round) -> Read:
    parser = Read()
    parser.feed(page(shown))
    return parser


def test_a_page_shows_faults_roles_and_messages() -> None:
    titles = read(ROUND).titles

    assert "kill_master, 3.0 s" in titles
    assert "isolate, 6.0 s" in titles, "a fault that was not healed lasts to the end"
    assert "master of epoch 1, in sync [1, 2, 3]" in titles
    assert "master of epoch 2, in sync [2, 3]" in titles
    assert "2 acknowledged in second 0" in titles
    assert "lost, acknowledged at 0.600 s" in titles


def test_texts_are_escaped_and_nothing_is_loaded() -> None:
    found = read(ROUND)

    assert "it is <nowhere>" in found.text
    assert not {"script", "link", "img"} & set(found.tags)
    assert not {"src", "href"} & found.attributes.keys()


def test_a_round_in_which_nothing_happened_has_a_page() -> None:
    assert "No promise was broken." in page(Round("empty", [], [], [], [], []))
