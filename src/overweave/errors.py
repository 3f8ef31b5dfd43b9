"""Every error a user of Overweave can meet, as one tree.

::

    OverweaveError          anything we raise on purpose
    ├── InvalidInput        the user's input is wrong (exit status 2)
    │   ├── ParseError      a text does not follow the grammar: column and expectation
    │   ├── WireError       bytes from outside do not follow the format: offset and expectation
    │   ├── LanguageError   a predicate, filter or publication that cannot exist
    │   ├── OverlayError    an overlay that cannot exist, or a broker that is not in it
    │   └── PlanningError   a planning problem or plan that cannot exist
    │       ├── DoesNotFit  something that no broker has room for: its id
    │       └── GoalNotMet  a goal that no plan of the algorithm meets: its name
    ├── Refused             a peer may not come in or go on: code and text
    │   └── NotAdvertised   a publication that no advertisement covers reached nobody; the client goes on
    ├── SessionLost         a broker forgot a client for a while: publications may be missing
    ├── DuplicateId         an id was given twice
    └── UnknownId           an id was used that the receiver never heard of

The texts name what is wrong and what was expected; the place (file, line, field) is added by
whoever knows it.
"""


class OverweaveError(Exception):
    """The root: catch this to catch everything that Overweave raises on purpose.

    >>> all(issubclass(each, OverweaveError) for each in (InvalidInput, DuplicateId, UnknownId))
    True
    """


class InvalidInput(OverweaveError, ValueError):
    """The input is wrong; the text says where and what was expected.

    >>> from overweave.language.syntax import parse_filter
    >>> try:
    ...     parse_filter("[volume,>,]")
    ... except InvalidInput as error:
    ...     print(error)
    column 11: expected a number or a text in single quotes, found ']'
    """


class ParseError(InvalidInput):
    """A text that is not in the language; ``column`` counts characters from 1.

    >>> error = ParseError(11, "a number", "']'")
    >>> error.column, str(error)
    (11, "column 11: expected a number, found ']'")
    """

    def __init__(self, column: int, expected: str, found: str) -> None:
        super().__init__(f"column {column}: expected {expected}, found {found}")
        self.column = column
        self.expected = expected
        self.found = found

    def __reduce__(self) -> tuple[type["ParseError"], tuple[int, str, str]]:
        return ParseError, (self.column, self.expected, self.found)


class WireError(InvalidInput):
    """Bytes that are not in the wire format; ``offset`` counts from 0.

    >>> error = WireError(2, "one more byte")
    >>> error.offset, str(error)
    (2, 'offset 2: expected one more byte')
    """

    def __init__(self, offset: int, expected: str) -> None:
        super().__init__(f"offset {offset}: expected {expected}")
        self.offset = offset
        self.expected = expected

    def __reduce__(self) -> tuple[type["WireError"], tuple[int, str]]:
        return WireError, (self.offset, self.expected)


class Refused(OverweaveError):
    """A peer that may not come in or go on; ``code`` and ``text`` are what it is told.

    >>> str(Refused("unauthorized", "expected a token"))
    'unauthorized: expected a token'
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text

    def __reduce__(self) -> tuple[type["Refused"], tuple[str, str]]:
        return Refused, (self.code, self.text)


class NotAdvertised(Refused):
    """Publications that no advertisement of their client covers: they reached nobody. The client is still connected.

    >>> error = NotAdvertised("publication [x,1]: expected one within an advertisement of 'c'")
    >>> error.code, isinstance(error, Refused)
    ('not-advertised', True)
    """

    def __init__(self, text: str) -> None:
        super().__init__("not-advertised", text)

    def __reduce__(self) -> tuple[type["NotAdvertised"], tuple[str]]:  # type: ignore[override]
        return NotAdvertised, (self.text,)


class SessionLost(OverweaveError):
    """A broker forgot a client that had subscriptions: publications between ``since_s`` and ``until_s`` may be missing.

    ``code`` and ``text`` say why, and ``count`` how many were dropped when it happened, if that is known; those published
    later are not counted. Times are the client's. The subscriptions are in force again, and whoever goes on reading gets
    what comes.

    >>> str(SessionLost("session-expired", "it was away for 30 s", 100.0, 142.5, 7))
    'session-expired: it was away for 30 s; publications of 42.5 s may be missing, 7 that were waiting and any published since'
    """

    def __init__(self, code: str, text: str, since_s: float, until_s: float, count: int | None = None) -> None:
        dropped = "" if count is None else f", {count:,} that were waiting and any published since"
        super().__init__(f"{code}: {text}; publications of {until_s - since_s:.3g} s may be missing{dropped}")
        self.code = code
        self.text = text
        self.since_s = since_s
        self.until_s = until_s
        self.count = count

    def __reduce__(self) -> tuple[type["SessionLost"], tuple[str, str, float, float, int | None]]:
        return SessionLost, (self.code, self.text, self.since_s, self.until_s, self.count)


class LanguageError(InvalidInput):
    """A predicate, filter or publication that cannot exist.

    >>> from overweave.language.publications import Publication
    >>> try:
    ...     Publication({})
    ... except LanguageError as error:
    ...     print(error)
    a publication: expected at least one attribute
    """


class OverlayError(InvalidInput):
    """An overlay that cannot exist, or a broker that is not part of it.

    >>> from overweave.overlay import Link
    >>> try:
    ...     Link("B1", "B1")
    ... except OverlayError as error:
    ...     print(error)
    link 'B1'-'B1': expected two different brokers
    """


class PlanningError(InvalidInput):
    """A planning problem or a plan that cannot exist; the text names what is wrong.

    >>> issubclass(PlanningError, InvalidInput)
    True
    """


class DoesNotFit(PlanningError):
    """Something that no broker has room for; ``id`` is the client or broker, or None where all of them together are too much.

    >>> error = DoesNotFit("c1", "client 'c1' needs 9 bytes/s, the largest broker has 8")
    >>> error.id, str(error)
    ('c1', "client 'c1' needs 9 bytes/s, the largest broker has 8")
    """

    def __init__(self, id: str | None, text: str, item: int | None = None) -> None:
        super().__init__(text)
        self.id = id
        #: Its position among what was to be allocated, for those who know what that was.
        self.item = item

    def __reduce__(self) -> tuple[type["DoesNotFit"], tuple[str | None, str, int | None]]:
        return DoesNotFit, (self.id, str(self), self.item)


class GoalNotMet(PlanningError):
    """A goal that cannot be met; ``goal`` is its name.

    >>> error = GoalNotMet("moves_max", "at most 3, the plan moves 4 clients")
    >>> error.goal, str(error)
    ('moves_max', 'goal moves_max: at most 3, the plan moves 4 clients')
    """

    def __init__(self, goal: str, text: str) -> None:
        super().__init__(f"goal {goal}: {text}")
        self.goal = goal
        self.text = text

    def __reduce__(self) -> tuple[type["GoalNotMet"], tuple[str, str]]:
        return GoalNotMet, (self.goal, self.text)


class DuplicateId(OverweaveError, ValueError):
    """An id that is in use already.

    >>> isinstance(DuplicateId("id 3: expected one that is not in use"), ValueError)
    True
    """


class UnknownId(OverweaveError, KeyError):
    """An id that was never added, or was removed already.

    >>> isinstance(UnknownId("id 3: expected one that was added"), KeyError)
    True
    >>> str(UnknownId("id 3: expected one that was added"))
    'id 3: expected one that was added'
    """

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""
