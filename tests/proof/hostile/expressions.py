"""CEL expressions made to take long, or much memory, in the few bytes that an API server takes."""

from __future__ import annotations

_TEN = "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"
_LONG = '"' + "ab" * 2000 + '"'


def _nested(body: str, first: str = "[1, 1]", made: str = "[a, a, a, a, a, a, a, a]", levels: int = 7) -> str:
    """Return the body, in which `a` stands for lists in lists: eight times as many elements a level."""
    for _ in range(levels):
        body = f"cel.bind(a, {made}, {body})"
    return f"cel.bind(a, {first}, {body})"


def _two(body: str, one: str, other: str) -> str:
    """Return the body, in which `a` and `b` stand for lists in lists of two elements."""
    for _ in range(7):
        body = f"cel.bind(a, [a, a, a, a, a, a, a, a], cel.bind(b, [b, b, b, b, b, b, b, b], {body}))"
    return f"cel.bind(a, [dyn({one})], cel.bind(b, [dyn({other})], {body}))"


def _doubled(body: str, first: str = "'ab'", times: int = 18) -> str:
    """Return the body, in which `a` stands for a text or list that is doubled so often."""
    for _ in range(times):
        body = f"cel.bind(a, a + a, {body})"
    return f"cel.bind(a, {first}, {body})"


def _in_loop(body: str) -> str:
    return _doubled(f"lists.range(40000).all(x, {body} || true)", times=15)


#: By what they do. Each spends all that it may.
ENDLESS = {
    "compares lists in lists": _nested("a == a"),
    "compares lists in lists for !=": _nested("a != a"),
    "looks for lists in lists": _nested("a in [a]"),
    "compares maps in maps": _nested("a == a", made="{1: a, 2: a, 3: a, 4: a, 5: a, 6: a, 7: a, 8: a}"),
    "compares optional lists": _nested("optional.of(a) == optional.of(a)"),
    "compares lists of an attribute": _nested(
        "a == a", 'device.attributes["gpu.example.com"].?index.optMap(x, [x]).value()'
    ),
    "compares integers with doubles": _two("a == b", "1", "1.0"),
    "compares texts": _two("a == b", "'abc'", "'abc'"),
    "compares versions": _two("a == b", 'semver("1.0.0-a")', 'semver("1.0.0-a")'),
    "compares what has no order": _two("a == b", 'quantity("1")', 'semver("1.0.0")'),
    "writes lists in lists": _nested('"%s".format([a]) == ""'),
    "writes times in lists": _nested('"%s".format([a]) == ""', "[timestamp(1)]"),
    "flattens lists in lists": _nested("a.flatten(9).size() > 0"),
    "makes lists in lists distinct": _nested("[a, a, a].distinct().size() == 1"),
    "compares sets of lists": _nested("sets.equivalent(a, a)"),
    "loops in loops": "".join(f"{_TEN}.all(x{depth}, " for depth in range(10)) + "true" + ")" * 10,
    "adds in loops": "".join(f"{_TEN}.all(x{depth}, " for depth in range(6)) + "x0 + x1 + x2 > 0" + ")" * 6,
    "fails in loops": "lists.range(9000).exists(x, lists.range(20).exists(y, y / 0 == 1))",
    "finds no field in loops": "lists.range(1000).all(x, lists.range(1000).all(y, dyn(x)['a'] + y >= 0))",
    "a list of a million": "lists.range(1000000).size() > 0",
    "a list for each of many": "lists.range(90000).map(x, [x, x, x, x]).size() > 0",
    "compares each with each": "lists.range(20000).distinct().size() > 0",
    "doubles a text": _doubled("a.size() > 0", times=40),
    "doubles a list": _doubled("a.size() > 0", "[1]", times=40),
    "copies a long text in a loop": _doubled("lists.range(1000).map(x, a + string(x)).size() > 0", times=15),
    "reads a long text in a loop": _in_loop("a.contains('c')"),
    "compares long texts in a loop": _in_loop("a == a + 'b'"),
    "splits long texts in a loop": _in_loop("a.split('b').size() > 0"),
    "replaces nothing by much": f'cel.bind(a, {_LONG}, cel.bind(b, a.replace("", a), b.replace("", b) == ""))',
    "joins long texts": f"cel.bind(a, {_LONG}.split(''), cel.bind(b, a + a, b.map(x, {_LONG}).join() == ''))",
    "writes a long text": _doubled('"%s".format([[a]]) == ""'),
    "matches with many states": f'lists.range(10000).all(x, {_LONG}.matches("(a|b)*a(a|b){{400}}c") || true)',
    "compiles many patterns": 'lists.range(100000).all(x, "a".matches(string(x) + "a{900}") || true)',
    "finds what is looked for to the end": _doubled("a.findAll('a.*c|a').size() > 0", times=12),
}
#: What would take long if the length of a text were not paid for, and nests as deep as names allow.
LARGE = {
    "an address": _doubled("isIP('::' + a)", "'1:'"),
    "a network": _doubled("isCIDR(a + '/8')"),
    "a URL": _doubled("isURL('http://' + a)"),
    "a query": _doubled("url('http://a/?' + a).getQuery().size() > 0", "'a&'", times=16),
    "a version": _doubled("isSemver('1.0.0-' + a)", "'a.'"),
    "a number": _doubled("double(a) > 0.0", "'1_1'"),
    "a text in lower case": _doubled("a.lowerAscii() == ''", "'Ä'"),
    "characters": _doubled("a.split('').size() == 0", "'€'"),
    "bytes": _doubled("string(bytes(a)) == ''", "'€'", times=17),
    "many keys": "lists.range(50000).transformMapEntry(i, v, {v: v}).size() == 0",
    "sorted numbers": "lists.range(30000).sortBy(x, -x).size() == 0",
    "an evil pattern": _doubled("a.matches('^(a+)+$')", "'a'"),
    "a pattern that is large": '"x".matches("' + r"[\\pL\\pN]" * 700 + '")',
    "patterns that are large": " || ".join(f'"x".matches("{number}x{{0,1000}}")' for number in range(300)),
    "constants": f"[{', '.join(['lists.range(1900)'] * 400)}].size() == 0",
    "lists nested by names": "".join(
        ["cel.bind(a, [1], ", *["cel.bind(a, [[[[[[[[a]]]]]]]], "] * 40, "a == a", ")" * 41]
    ),
}
