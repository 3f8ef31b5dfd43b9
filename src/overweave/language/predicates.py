"""Predicates and filters: what subscriptions and advertisements say about content (THESIS 3.2, SPEC 0).

A filter is a conjunction of predicates ``[attribute,operator,value]``. The kind of the value decides what
an operator means: ``LT`` on a number is ``<``, on text it is ``str-lt``. A predicate on a missing
attribute, or on a value of the other kind, is false, and that holds for ``<>`` too.
"""

import enum
import math
from collections.abc import Mapping

import msgspec

from overweave.errors import LanguageError
from overweave.language.values import INTEGER_MAX, INTEGER_MIN, Value, check_name, check_text, excerpt, format_value, is_number


class Operator(enum.IntEnum):
    """What a predicate asks of a value; the numbers are those of the wire format.

    >>> Operator.GT, NUMBER_OPERATORS[Operator.GT], TEXT_OPERATORS[Operator.GT]
    (<Operator.GT: 5>, '>', 'str-gt')
    """

    EQ = 1
    NE = 2
    LT = 3
    LE = 4
    GT = 5
    GE = 6
    PREFIX = 7
    SUFFIX = 8
    CONTAINS = 9
    PRESENT = 10


#: How an operator is written when its value is a number.
NUMBER_OPERATORS: Mapping[Operator, str] = {
    Operator.EQ: "=",
    Operator.NE: "<>",
    Operator.LT: "<",
    Operator.LE: "<=",
    Operator.GT: ">",
    Operator.GE: ">=",
    Operator.PRESENT: "isPresent",
}
#: How an operator is written when its value is text.
TEXT_OPERATORS: Mapping[Operator, str] = {
    Operator.EQ: "eq",
    Operator.NE: "neq",
    Operator.LT: "str-lt",
    Operator.LE: "str-le",
    Operator.GT: "str-gt",
    Operator.GE: "str-ge",
    Operator.PREFIX: "str-prefix",
    Operator.SUFFIX: "str-suffix",
    Operator.CONTAINS: "str-contains",
    Operator.PRESENT: "isPresent",
}


class Predicate(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """One condition on one attribute.

    >>> Predicate("volume", Operator.GT, 1000).holds(1200)
    True
    >>> Predicate("volume", Operator.NE, 1000).holds("1200")
    False
    """

    attribute: str
    operator: Operator
    value: Value

    def __post_init__(self) -> None:
        check_name(self.attribute)
        value, operator = self.value, self.operator
        where = f"predicate on {self.attribute!r}"
        if not isinstance(operator, Operator):
            raise LanguageError(f"{where}: expected an Operator, got {excerpt(operator)}")
        if isinstance(value, str):
            check_text(value, where)
            return
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise LanguageError(f"{where}: expected text or a number, got {excerpt(value)}")
        if operator not in NUMBER_OPERATORS:
            raise LanguageError(f"{where}: expected text after {TEXT_OPERATORS[operator]}, got the number {excerpt(value)}")
        if isinstance(value, float) and math.isnan(value):
            raise LanguageError(f"{where}: expected a number that can be compared, got nan")
        if isinstance(value, int) and not INTEGER_MIN <= value <= INTEGER_MAX:
            raise LanguageError(f"{where}: expected an integer of 64 bits, got {excerpt(value)}")

    def holds(self, value: Value) -> bool:
        """Whether a publication's ``value`` of this attribute satisfies the predicate: the definition, kept plain.

        >>> Predicate("symbol", Operator.PREFIX, "YH").holds("YHOO")
        True
        """
        operand = self.value
        if is_number(value) != is_number(operand):
            return False
        match self.operator:
            case Operator.EQ:
                return value == operand
            case Operator.NE:
                return value != operand
            case Operator.LT:
                return value < operand  # type: ignore[operator]
            case Operator.LE:
                return value <= operand  # type: ignore[operator]
            case Operator.GT:
                return value > operand  # type: ignore[operator]
            case Operator.GE:
                return value >= operand  # type: ignore[operator]
            case Operator.PREFIX:
                return str(value).startswith(str(operand))
            case Operator.SUFFIX:
                return str(value).endswith(str(operand))
            case Operator.CONTAINS:
                return str(operand) in str(value)
            case Operator.PRESENT:
                return True

    def __str__(self) -> str:
        operators = NUMBER_OPERATORS if is_number(self.value) else TEXT_OPERATORS
        return f"[{self.attribute},{operators[self.operator]},{format_value(self.value)}]"


class Filter(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A conjunction of at least one predicate: the content of a subscription or an advertisement.

    >>> str(Filter((Predicate("class", Operator.EQ, "STOCK"), Predicate("volume", Operator.GT, 1000))))
    "[class,eq,'STOCK'],[volume,>,1000]"
    """

    predicates: tuple[Predicate, ...]

    def __post_init__(self) -> None:
        if not self.predicates:
            raise LanguageError("a filter: expected at least one predicate")

    def __str__(self) -> str:
        return ",".join(map(str, self.predicates))
