"""The query language by itself: what is read, what is refused, and how a mistake is told."""

from __future__ import annotations

import itertools
import re

import pytest
from ask_kit import DAY, NOW
from hypothesis import given
from hypothesis import strategies as st

from muster.track.query import And, Compare, Field, Has, Not, Or, QueryError, Sort, Span, parse, parse_field, parse_sort
from muster.track.query.fields import PLAIN
from muster.track.query.functions import Patterns
from muster.track.query.regex import BadPattern, Pattern

LR = Field("param", "lr")
WORDS = "metrics.a params.b tags.`c` ( ) and or not in has = != < ~ , 1 2.5 'x' \"y\" failed valid data -7d"


def ask(text: str) -> object:
    return parse(text, NOW)


def mistake(text: str) -> QueryError | None:
    try:
        ask(text)
    except QueryError as error:
        return error
    return None


class TestReading:
    def test_the_query_of_the_readme(self) -> None:
        assert ask("metrics.val_loss < 2.1 and params.lr >= 3e-4 and data = c4-en@v3") == And(
            (
                Compare(Field("metric", "val_loss"), "<", (2.1,)),
                Compare(LR, ">=", (3e-4,)),
                Compare(Field("data", "data"), "=", ("c4-en@v3",)),
            )
        )

    def test_and_binds_tighter_than_or_and_not_than_both(self) -> None:
        a, b, c = (Compare(Field("tag", name), "=", ("1.5",)) for name in "abc")
        text = "tags.a = '1.5' or not tags.b = '1.5' and tags.c = '1.5'"
        assert ask(text) == Or((a, And((Not(b), c))))
        assert ask(f"({text})") == ask(text)

    @pytest.mark.parametrize(
        ("text", "field"),
        [
            ("metrics.loss.min", Field("metric", "loss", "min")),
            ("metrics.`loss.min`", Field("metric", "loss.min")),
            ("metrics.`a b`.max", Field("metric", "a b", "max")),
            ('metrics."a b"', Field("metric", "a b")),
            ("metrics.min", Field("metric", "min")),
            ("metrics.val/loss", Field("metric", "val/loss")),
            ("metrics.val.loss", Field("metric", "val.loss")),
            ("params.model.depth", Field("param", "model.depth")),
            ("PARAMS.LR", Field("param", "LR")),
            ("env.packages.torch", Field("version", "packages.torch")),
            ("env.packages.`a b`", Field("version", "packages.a b")),
            ("owner", Field("column", "user")),
            ("code.commit", Field("commit", "code_commit")),
        ],
    )
    def test_fields(self, text: str, field: Field) -> None:
        assert parse_field(text) == field

    def test_shown_fields_can_be_read_again(self) -> None:
        names = "metrics.loss.min metrics.`loss.min` metrics.`a.max`.min params.lr tags.`a(b` env.packages.torch"
        for text in (*names.split(), *PLAIN):
            assert parse_field(str(parse_field(text))) == parse_field(text)
            assert str(parse_field(text)) == text or "`" in text or text == "owner"

    def test_words_alone(self) -> None:
        assert ask("failed") == Compare(Field("phase", "phase"), "=", ("failed",))
        assert ask("not valid") == Not(Compare(Field("flag", "valid"), "=", (True,)))
        assert ask("has params.lr and params.lr exists") == And((Has(LR), Has(LR)))
        assert ask("params.lr not exists") == Not(Has(LR))
        assert ask("") == And(())

    def test_lists_and_negations(self) -> None:
        assert ask("params.lr in (1, 'a b', x)") == Compare(LR, "in", (1.0, "a b", "x"))
        assert ask("params.lr not in (1)") == Compare(LR, "not in", (1.0,))
        assert ask("params.lr not like 'a%'") == Compare(LR, "not like", ("a%",))
        assert ask("params.lr!=1") == ask("params.lr <> 1") == Compare(LR, "!=", (1.0,))
        assert ask("params.lr == 1 AND params.lr !~ x") == ask("params.lr=1 and params.lr!~x")

    def test_quotes_make_text(self) -> None:
        assert ask("params.lr = '1'") == Compare(LR, "=", ("1",))
        assert ask(r"params.lr = 'it\'s'") == Compare(LR, "=", ("it's",))
        assert ask(r"params.lr ~ '^\d+$'") == Compare(LR, "~", (r"^\d+$",))

    @pytest.mark.parametrize(
        ("text", "span"),
        [
            ("-7d", Span(NOW - 7 * DAY, NOW - 7 * DAY)),
            ("today", Span(1779926400.0, 1779926400.0 + DAY)),
            ("yesterday", Span(1779926400.0 - DAY, 1779926400.0)),
            ("2026-05-28", Span(1779926400.0, 1779926400.0 + DAY)),
            ("2026-05", Span(1777593600.0, 1780272000.0)),
            ("2025-12", Span(1764547200.0, 1767225600.0)),
            ("2026", Span(1767225600.0, 1798761600.0)),
            ("2026-05-28T20:26", Span(1779999960.0, 1780000020.0)),
            ("'2026-05-28 22:26:40+02:00'", Span(NOW, NOW + 1)),
            ("1780000000", Span(NOW, NOW)),
        ],
    )
    def test_times(self, text: str, span: Span) -> None:
        assert ask(f"created >= {text}") == Compare(Field("time", "created_at"), ">=", (span,))

    def test_durations(self) -> None:
        assert ask("duration > 2h30m") == Compare(Field("duration", "duration"), ">", (9000.0,))

    def test_sorting(self) -> None:
        assert parse_sort("-metrics.val_loss.min, params.lr") == (
            Sort(Field("metric", "val_loss", "min"), True),
            Sort(LR, False),
        )
        assert parse_sort("params.lr desc, +name") == (Sort(LR, True), Sort(Field("column", "name")))
        assert parse_sort("  ") == ()


class TestMistakes:
    @pytest.mark.parametrize(
        ("text", "caret", "words"),
        [
            ("metric.loss <", "             ^", "value was expected"),
            ("lr > 3", "^^", "params.lr"),
            ("metrcs.loss < 2", "^^^^^^^^^^^", "metrics.loss"),
            ("creatd > -7d", "^^^^^^", "`created`"),
            ("params.lr >> 3", "           ^", "value was expected"),
            ("metrics.loss < abc", "               ^^^", "a number"),
            ("phase = runing", "        ^^^^^^", "running"),
            ("created > someday", "          ^^^^^^^", "a date such as"),
            ("created = -7d", "          ^^^", "day or a minute"),
            ("duration > long", "           ^^^^", "a duration such as"),
            ("valid > true", "        ^^^^", "= true"),
            ("(params.a = 1", "^", "never closed"),
            ("params.a = 1)", "            ^", "without its `(`"),
            ("params.a = 'x", "           ^^", "never closed"),
            ("params.a = 1 params.b = 2", "             ^^^^^^^^", "`and`"),
            ("params.a = 1 && params.b = 2", "             ^^", "Write `and`"),
            ("params.a in 1, 2", "            ^", "parentheses"),
            ("params.a in (1 2)", "               ^", "`,` or `)`"),
            ("gpt", "^^^", "name ~ gpt"),
            ("params.lr", "         ^", "nothing is asked"),
            ("params. = 3", "^^^^^^^", "a name after"),
            ("metrics.loss ~ x", "               ^", "no text"),
            ("name ~ '(a'", "       ^^^^", "never closed"),
            ("name ~ '(?=a)'", "       ^^^^^^^", "only `(?:`"),
            ("not", "   ^", "condition was expected"),
            ("! valid", "^", "`not`"),
            ("= 3", "^", "a field was expected"),
            ("data > c4", "       ^^", "no order"),
        ],
    )
    def test_place_and_mend(self, text: str, caret: str, words: str) -> None:
        with pytest.raises(QueryError) as raised:
            ask(text)
        told = str(raised.value)
        assert words in told
        shown, carets = raised.value.message.splitlines()[1:3]
        assert shown == f"  {text}"
        assert carets.rstrip() == f"  {caret}"

    def test_a_long_query_is_shown_around_the_mistake(self) -> None:
        text = " and ".join(["params.a = 1"] * 50 + ["oops > 1"] + ["params.a = 1"] * 50)
        with pytest.raises(QueryError) as raised:
            ask(text)
        shown, carets = raised.value.message.splitlines()[1:3]
        assert len(shown) < 150
        assert shown[carets.index("^") : carets.rindex("^") + 1] == "oops"

    def test_limits(self) -> None:
        for text in (
            "not " * 50 + "valid",
            "(" * 50 + "valid" + ")" * 50,
            " or ".join(["valid"] * 201),
            f"params.a in ({', '.join(['1'] * 1001)})",
            "x" * 20_001,
            f"name ~ '{'(a{200}){200}'}'",
        ):
            with pytest.raises(QueryError):
                ask(text)
        with pytest.raises(QueryError, match="sort by"):
            parse_sort("name,name,name,name,name,name")

    @given(st.text(max_size=60))
    def test_no_text_breaks_it(self, text: str) -> None:
        error = mistake(text)
        assert error is None or (error.message and error.hint)

    @given(st.lists(st.sampled_from(WORDS.split(" ")), max_size=12))
    def test_no_row_of_words_breaks_it(self, words: list[str]) -> None:
        error = mistake(" ".join(words))
        assert error is None or 0 <= error.start <= error.end


ATOMS = st.one_of(
    st.sampled_from(
        ["a", "b", "A", ".", "[ab]", "[^a]", "[a-c]", r"\d", r"\w", r"\s", r"\D", "^", "$", "0", " ", r"\."]
    )
)
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,}"])).map(
            lambda two: f"({two[0]}){two[1]}"
        ),
    ),
    max_leaves=8,
)


class TestPatterns:
    @given(PATTERNS, st.text("abAB0 .\n", max_size=12))
    def test_they_match_as_pythons_do(self, pattern: str, text: str) -> None:
        # `\Z` is what `$` means here: the end of the whole text, not before its last line break.
        peer = re.compile(re.sub(r"(?<!\\)\$", r"\\Z", pattern), re.I | re.S)
        assert Pattern(pattern).occurs(text) == (peer.search(text) is not None)

    @pytest.mark.parametrize(
        ("pattern", "text", "found"),
        [
            ("(a*)*(a|a)*$b", "a" * 50_000, False),
            ("(a|aa)+$", "a" * 50_000, True),
            ("(a+)+$", "a" * 50_000 + "b", False),
            ("^(a?){99}a{99}$", "a" * 99, True),
            ("(a|b)*a(a|b){200}c", "".join("ab"[number.bit_count() % 2] for number in range(99_000)), False),
            ("((a?){9}){9}b", "".join("ab"[number.bit_count() % 2] for number in range(99_000)), True),
            ("[" + "".join(map(chr, range(0x4E00, 0x4EC0))) + "]{150}", "\u4ebd" * 99_000, True),
            ("(a*)*b", "".join(map(chr, range(0x100, 0x100 + 50_000))) * 40, False),
        ],
        ids=["nothings", "two ways", "nested", "optional", "states", "repeats", "large class", "many characters"],
    )
    def test_one_that_hangs_others_is_answered(self, pattern: str, text: str, found: bool) -> None:
        assert Pattern(pattern).occurs(text) is found

    def test_it_says_so_when_patterns_took_too_long(self) -> None:
        ticks = itertools.count(step=3.0)
        patterns = Patterns(lambda: next(ticks))
        found = [patterns("a.c", "abc") for _ in range(5)]
        assert found == [True, True, True, True, False]
        assert patterns.spent

    @pytest.mark.parametrize(
        "pattern",
        ["a" * 3000 + "*", "((a{0,100}){0,100}){0,100}", "(a{200}){200}", "(ab){255}" * 4, "(" * 60 + "a" + ")" * 60],
    )
    def test_patterns_are_bounded(self, pattern: str) -> None:
        with pytest.raises(BadPattern, match=r"too much|more than"):
            Pattern(pattern)

    @pytest.mark.parametrize(
        ("pattern", "text", "found"),
        [
            (r"^\d$", "\u0663", True),  # an Arabic-Indic digit
            (r"^\w+$", "größe_\u2167", True),
            (r"^\W$", "ß", False),
            (r"^[\w.]+$", "é.\u65e5", True),
            (r"^\s\s$", "\u2028\x85", True),
            ("^ÉTÉ.$", "été\n", True),
            ("a$", "a\n", False),
            (r"^\—$", "—", True),
        ],
    )
    def test_letters_are_all_letters(self, pattern: str, text: str, found: bool) -> None:
        assert Pattern(pattern).occurs(text) is found

    @pytest.mark.parametrize("pattern", [r"(a)\1", "(?=a)b", "(?!a)b", "(?<=a)b", "(?<!a)b"])
    def test_what_takes_more_than_linear_time_is_refused_with_another_way(self, pattern: str) -> None:
        error = mistake(f"name ~ '{pattern}'")
        assert error is not None
        assert repr(pattern) in str(error)
        assert "backreference" in str(error) or "lookahead or lookbehind" in str(error)
        assert "name ~ a and not name ~ b" in str(error.hint)

    def test_nothing_is_written_to_the_servers_output(self, capfd: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(BadPattern):
            Pattern("(a")
        assert capfd.readouterr() == ("", "")

    @pytest.mark.parametrize(
        "pattern",
        [
            "a**",
            "*a",
            "a{3,1}",
            "a{,3}",
            "a{999}",
            "[z-a]",
            "[a",
            "(a",
            "a)",
            "\\q",
            "\\",
            "(?i)a",
            "[[:alpha:]]",
            "a{",
            "^*",
            "[a-c-e]",  # PostgreSQL refuses these four
            r"[\w-z]",
            r"[\.-z]",
            "[0-9--.]",
        ],
    )
    def test_what_is_refused(self, pattern: str) -> None:
        with pytest.raises(BadPattern):
            Pattern(pattern)
