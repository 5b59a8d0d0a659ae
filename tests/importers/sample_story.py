"""What happens in the bundled sample session: a made-up shop, its files, and who says what.

Texts only; `tests.importers.sample` turns them into the lines of a transcript.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

HOME: Final = "/home/dev/shop"

MONEY: Final = '''"""Amounts of money in whole cents."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal


@dataclass(frozen=True, order=True)
class Money:
    """An amount in one currency."""

    cents: int
    currency: str = "EUR"

    @classmethod
    def parse(cls, text: str, currency: str = "EUR") -> Money:
        """Read "12.34"; raises ValueError for more than two decimals."""
        value = Decimal(text.strip())
        if value != value.quantize(Decimal("0.01")):
            raise ValueError(f"{text!r} has fractions of a cent")
        return cls(int(value * 100), currency)

    def __add__(self, other: Money) -> Money:
        self._same(other)
        return Money(self.cents + other.cents, self.currency)

    def __sub__(self, other: Money) -> Money:
        self._same(other)
        return Money(self.cents - other.cents, self.currency)

    def times(self, quantity: int) -> Money:
        return Money(self.cents * quantity, self.currency)

    def percent(self, rate: Decimal) -> Money:
        """Return a share of the amount, rounded half up to the cent."""
        share = (Decimal(self.cents) * rate / 100).quantize(Decimal(1), ROUND_HALF_UP)
        return Money(int(share), self.currency)

    def _same(self, other: Money) -> None:
        if self.currency != other.currency:
            raise ValueError(f"{self.currency} and {other.currency} cannot be mixed")

    def __str__(self) -> str:
        return f"{self.cents // 100}.{self.cents % 100:02} {self.currency}"
'''

TOTALS: Final = '''"""What an order costs: lines, discounts, tax and shipping."""

from __future__ import annotations

from decimal import Decimal

from shop.catalog import CATALOG
from shop.discounts import Discount
from shop.money import Money
from shop.orders import Order

FREE_SHIPPING_FROM = Money(5_000)
SHIPPING = Money(490)


def subtotal(order: Order) -> Money:
    """Return the price of all lines before discounts."""
    amount = Money(0)
    for line in order.lines:
        amount = amount + CATALOG[line.sku].price.times(line.quantity)
    return amount


def discount(order: Order, rules: list[Discount]) -> Money:
    """Return what the rules take off, never more than the subtotal."""
    whole = subtotal(order)
    taken = Money(0)
    for rule in rules:
        if rule.applies(order):
            # the rate is taken of every line and rounded there
            for line in order.lines:
                price = CATALOG[line.sku].price.times(line.quantity)
                taken = taken + price.percent(rule.rate)
    return min(taken, whole)


def tax(order: Order, rules: list[Discount]) -> Money:
    """Return the tax that is contained in the discounted price, by rate."""
    due = Money(0)
    for rate in sorted({CATALOG[line.sku].tax for line in order.lines}):
        lines = [line for line in order.lines if CATALOG[line.sku].tax == rate]
        net = Money(0)
        for line in lines:
            net = net + CATALOG[line.sku].price.times(line.quantity)
        due = due + net.percent(Decimal(100) * rate / (100 + rate))
    return due


def shipping(order: Order, rules: list[Discount]) -> Money:
    """Return the shipping fee; large orders are free."""
    remaining = subtotal(order) - discount(order, rules)
    return Money(0) if remaining >= FREE_SHIPPING_FROM else SHIPPING


def total(order: Order, rules: list[Discount]) -> Money:
    """Return what the customer pays."""
    return subtotal(order) - discount(order, rules) + shipping(order, rules)
'''

DISCOUNTS: Final = '''"""Which orders get something off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from shop.orders import Order


@dataclass(frozen=True)
class Discount:
    """A rate in percent and whom it is for."""

    name: str
    rate: Decimal
    applies: Callable[[Order], bool]


def regulars(orders_before: int) -> Discount:
    """Five percent for people who ordered often enough."""
    return Discount("regulars", Decimal(5), lambda o: o.customer.orders >= orders_before)


def spring(month: int) -> Discount:
    """A rate with a fraction, which is where rounding shows."""
    return Discount("spring", Decimal("7.5"), lambda o: o.placed.month == month)
'''

TESTS: Final = '''"""Totals of orders."""

from decimal import Decimal

import pytest

from shop.discounts import Discount
from shop.money import Money
from shop.totals import discount, shipping, subtotal, total

from tests.samples import order

ALWAYS = Discount("always", Decimal("7.5"), lambda _: True)


def test_lines_are_summed():
    assert subtotal(order(("TEA-001", 2), ("CUP-004", 1))) == Money(2_485)


@pytest.mark.parametrize("count", range(1, 40))
def test_a_discount_is_rounded_once(count):
    many = order(*[("TEA-001", 1)] * count)
    assert discount(many, [ALWAYS]) == subtotal(many).percent(Decimal("7.5"))


def test_large_orders_ship_free():
    assert shipping(order(("POT-002", 3)), []) == Money(0)


def test_the_discount_comes_off_before_shipping_is_decided():
    close = order(("POT-002", 1), ("CUP-004", 2))
    assert shipping(close, [ALWAYS]) == Money(490)


def test_totals_add_up():
    some = order(("TEA-001", 3), ("CUP-004", 2))
    assert total(some, []) == subtotal(some) + shipping(some, [])
'''

INVOICE: Final = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Invoice {{ invoice.number }}</title>
<style>
  body { font: 11pt/1.5 Georgia, serif; margin: 2cm; }
  table { border-collapse: collapse; width: 100%; }
  th, td { border-bottom: 1px solid #bbb; padding: 0.3em 0.6em; text-align: left; }
  td.amount { text-align: left; white-space: nowrap; }
  tr.total td { border-top: 2px solid #333; font-weight: bold; }
</style></head>
<body>
<h1>Invoice {{ invoice.number }}</h1>
<p>{{ invoice.customer.name }}<br>{{ invoice.customer.street }}<br>{{ invoice.customer.city }}</p>
<table>
  <tr><th>Article</th><th>Quantity</th><th>Price</th><th>Amount</th></tr>
  {% for line in invoice.lines %}
  <tr><td>{{ line.title }}</td><td>{{ line.quantity }}</td>
      <td class="amount">{{ line.price }}</td><td class="amount">{{ line.amount }}</td></tr>
  {% endfor %}
  <tr><td colspan="3">Discount</td><td class="amount">-{{ invoice.discount }}</td></tr>
  <tr><td colspan="3">Shipping</td><td class="amount">{{ invoice.shipping }}</td></tr>
  <tr class="total"><td colspan="3">Total</td><td class="amount">{{ invoice.total }}</td></tr>
</table>
</body></html>
"""

SCREENSHOT: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAAoAAAAGQAQAAAAAWiOyIAAAAh0lEQVR42u3MIQEAAAACIP+f1hNGGEB6FqFQKBQKhUKh"
    "UCgUCoVCoVAoFAqFQqFQKBQKhUKhUCgUCoVCoVAoFAqFQqFQKBQKhUKhUCgUCoVCoVAoFAqFQqFQKBQKhUKhUCgUCoVC"
    "oVAoFAqFQqFQKBQKhUKhUCgUCoVCoVAoFAqFQqFQKBQ+DB6AikXVkoMAAAAAAElFTkSuQmCC"
)
"""An empty page of 640 by 400 pixels, as a PNG in base64."""


def catalog() -> str:
    """Return a long file: the articles of the shop."""
    chance = Random(4)
    kinds = {
        "TEA": "tea",
        "CUP": "cup",
        "POT": "pot",
        "TIN": "tin",
        "JAM": "jam",
        "BOX": "gift box",
    }
    adjectives = (
        "small",
        "large",
        "green",
        "black",
        "blue",
        "smoked",
        "plain",
        "winter",
        "harbour",
    )
    rows = []
    for kind, noun in kinds.items():
        for number in range(1, 13):
            title = f"{chance.choice(adjectives)} {chance.choice(adjectives)} {noun}"
            price, tax = chance.randrange(290, 4990, 5), chance.choice((7, 19))
            grams = chance.randrange(40, 2400, 20)
            rows.append(
                f'    "{kind}-{number:03}": Article("{title}", Money({price}), '
                f"tax=Decimal({tax}), grams={grams}),"
            )
    head = '"""What the shop sells."""\n\nfrom decimal import Decimal\n\nfrom shop.articles import '
    return (
        f"{head}Article\nfrom shop.money import Money\n\nCATALOG = {{\n" + "\n".join(rows) + "\n}\n"
    )


def suite(failing: int, passing: int) -> str:
    """Return what a run of the tests prints."""
    lines = ["============================= test session starts =============================="]
    lines += [
        f"rootdir: {HOME}",
        "configfile: pyproject.toml",
        f"collected {failing + passing} items",
    ]
    for count in range(1, failing + 1):
        lines += [
            f"____________ test_a_discount_is_rounded_once[{count * 2 + 1}] ____________",
            "    def test_a_discount_is_rounded_once(count):",
            '        many = order(*[("TEA-001", 1)] * count)',
            '>       assert discount(many, [ALWAYS]) == subtotal(many).percent(Decimal("7.5"))',
            f"E       assert Money(cents={138 * count + 69}) == Money(cents={137 * count + 69})",
            "tests/test_totals.py:24: AssertionError",
        ]
    outcome = f"{failing} failed, {passing} passed" if failing else f"{passing} passed"
    return "\n".join([*lines, f"============== {outcome} in 0.{failing + 31}s =============="])


def numbered(text: str) -> str:
    """Return a file as the Read tool shows it."""
    return "\n".join(f"{n:>6}→{line}" for n, line in enumerate(text.splitlines(), 1))


@dataclass(frozen=True, slots=True)
class Tool:
    """A call and its result."""

    name: str
    input: Mapping[str, Any]
    result: str


@dataclass(frozen=True, slots=True)
class Answer:
    """One response of the model."""

    text: str = ""
    tools: Sequence[Tool] = ()
    thinking: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """A message of the user, with an image where `image` holds one in base64."""

    text: str
    image: str = ""


@dataclass(frozen=True, slots=True)
class Compact:
    """The user's /compact, and the summary that it leaves."""

    summary: str


Step = Ask | Answer | Compact


def read(path: str, text: str) -> Tool:
    """Return a Read of a whole file."""
    return Tool("Read", {"file_path": f"{HOME}/{path}"}, numbered(text))


def bash(command: str, result: str, description: str) -> Tool:
    """Return a Bash call."""
    return Tool("Bash", {"command": command, "description": description}, result)


def grep(pattern: str, result: str) -> Tool:
    """Return a Grep over the project."""
    return Tool("Grep", {"pattern": pattern, "path": HOME, "output_mode": "content"}, result)


def edit(path: str, old: str, new: str, text: str) -> Tool:
    """Return an Edit; its result shows the place in the file as it was edited."""
    after = text.replace(old, new)
    place = max(after[: after.index(new)].count("\n") - 3, 0)
    shown = numbered(after).splitlines()[place : place + new.count("\n") + 8]
    told = f"The file {HOME}/{path} has been updated. Here's the result of running `cat -n`:\n"
    return Tool(
        "Edit",
        {"file_path": f"{HOME}/{path}", "old_string": old, "new_string": new},
        told + "\n".join(shown),
    )


LOOP: Final = """            # the rate is taken of every line and rounded there
            for line in order.lines:
                price = CATALOG[line.sku].price.times(line.quantity)
                taken = taken + price.percent(rule.rate)
"""
ONCE: Final = """            taken = taken + whole.percent(rule.rate)
"""
TOTALS_ONCE: Final = TOTALS.replace(LOOP, ONCE)
NET: Final = """        due = due + net.percent(Decimal(100) * rate / (100 + rate))
"""
NET_OFF: Final = """        off = sum((r.rate for r in rules if r.applies(order)), Decimal(0))
        net = net - net.percent(min(off, Decimal(100)))
        due = due + net.percent(Decimal(100) * rate / (100 + rate))
"""
RUN: Final = "python -m pytest -q"

SUMMARY: Final = """This session is being continued from a previous conversation that ran out of
context. The conversation is summarized below:

1. What the user wants: totals of orders were off by a cent where a discount has a fraction
(spring, 7.5 %). The rounding was to happen once per order and not once per line. Then the tax
was to respect discounts. The user asked never to change shop/money.py, because the accounting
export depends on it.

2. What was done: in shop/totals.py `discount` now takes the rate of the whole subtotal; the
loop over lines is gone. `tax` takes discounts off the net amount of each rate before the share
is worked out. All 61 tests passed after both changes. Nothing is committed yet.

3. Files that matter: shop/totals.py (changed), shop/discounts.py (read), shop/money.py (read,
must not change), tests/test_totals.py (read; test_a_discount_is_rounded_once covers the first
change, the tax has no test yet).

4. What is next: a test for the tax with a discount, then the invoice page, of which the user
will send a screenshot."""


STORY: Final[Sequence[Step]] = (
    Ask(
        "Customers complain that their totals are off by a cent in the spring sale. Find out why "
        "and fix it. Never change shop/money.py, the accounting export depends on it."
    ),
    Answer(
        "I'll look at how totals are worked out.",
        (
            grep(
                "percent\\(|ROUND",
                "shop/money.py:4:from decimal import ROUND_HALF_UP, Decimal\n"
                "shop/money.py:39:    def percent(self, rate: Decimal) -> Money:\n"
                "shop/money.py:41:        share = (Decimal(self.cents) * rate / 100).quantize("
                "Decimal(1), ROUND_HALF_UP)\nshop/totals.py:38:                taken = taken + "
                "price.percent(rule.rate)\nshop/totals.py:51:        due = due + net.percent("
                "Decimal(100) * rate / (100 + rate))",
            ),
        ),
        "A cent too much or too little smells of rounding. The spring discount is 7.5 %, so there "
        "are half cents. I should see where percent() is called and how often per order.",
    ),
    Answer(tools=(read("shop/totals.py", TOTALS), read("shop/money.py", MONEY))),
    Answer(
        "`discount` rounds on every line. With 7.5 % each line can be half a cent off, and the "
        "errors add up. Next: how the rules are made, and what the tests expect.",
        (read("shop/discounts.py", DISCOUNTS), read("tests/test_totals.py", TESTS)),
    ),
    Answer(tools=(bash(RUN, suite(19, 42), "Run the tests"),)),
    Answer(
        "19 of the rounding tests fail, all with more lines than one. That confirms it.",
        (read("shop/catalog.py", catalog()),),
        "Is there a price that makes it worse? TEA-001 is the one in the tests. Prices are in "
        "cents and positive, fine. Rounding once on the subtotal is what the test asks for.",
    ),
    Answer(
        "The catalogue is as expected: whole cents everywhere. I take the rate of the subtotal "
        "instead.",
        (edit("shop/totals.py", LOOP, ONCE, TOTALS),),
    ),
    Answer(tools=(bash(RUN, suite(0, 61), "Run the tests again"),)),
    Answer(
        "Fixed: `discount` in shop/totals.py now takes the rate of the whole subtotal and rounds "
        "once. All 61 tests pass, and shop/money.py is untouched."
    ),
    Ask("Good. Does the tax respect discounts? I don't think it does."),
    Answer(tools=(read("shop/totals.py", TOTALS_ONCE),)),
    Answer(
        "You're right: `tax` takes the net amount from list prices and ignores its `rules` "
        "argument. Who calls it?",
        (
            grep(
                "tax\\(",
                "shop/totals.py:41:def tax(order: Order, rules: list[Discount]) -> Money:\n"
                "shop/invoices.py:58:        tax=tax(order, rules_at(order.placed)),\n"
                "shop/export.py:31:    row['tax'] = str(tax(order, []))",
            ),
            bash(
                "git log --oneline -n 12 -- shop/totals.py",
                "\n".join(
                    f"{sha} {what}"
                    for sha, what in (
                        ("9f31c02", "Free shipping from fifty euros"),
                        ("41b7aa9", "Tax by rate, for mixed baskets"),
                        ("e02d5f7", "Cap discounts at the subtotal"),
                        ("77c1d10", "Discounts as rules"),
                        ("0a94be3", "Totals of orders"),
                    )
                ),
                "Look at the history",
            ),
        ),
    ),
    Answer(
        "The export passes no rules on purpose and keeps its numbers. I take the discount off the "
        "net amount of each rate.",
        (edit("shop/totals.py", NET, NET_OFF, TOTALS_ONCE),),
        "The discount is a share of the subtotal, so the same share comes off every rate. If I "
        "sum the rates of the rules that apply, I must cap at 100.",
    ),
    Answer(tools=(bash(RUN, suite(0, 61), "Run the tests"),)),
    Answer(
        "`tax` now takes discounts off first, and the export still gets list prices. There is no "
        "test for it yet; shall I write one?"
    ),
    Ask("Yes, after lunch. Then I also have a screenshot of the invoice page for you."),
    Answer("Fine. I'll start with the test for the tax."),
    Compact(SUMMARY),
    Ask("Back. Write the test for the tax now."),
    Answer(
        "I'll read the current state of both files first.",
        (
            read("shop/totals.py", TOTALS_ONCE.replace(NET, NET_OFF)),
            read("tests/test_totals.py", TESTS),
        ),
    ),
    Answer(
        tools=(
            edit(
                "tests/test_totals.py",
                "def test_totals_add_up():\n",
                "def test_the_tax_is_that_of_the_discounted_price():\n"
                '    some = order(("TEA-001", 4))\n'
                "    half = Discount('half', Decimal(50), lambda _: True)\n"
                '    assert tax(some, [half]) == tax(order(("TEA-001", 2)), [])\n\n\n'
                "def test_totals_add_up():\n",
                TESTS,
            ),
            edit(
                "tests/test_totals.py",
                "discount, shipping, subtotal, total",
                "discount, shipping, subtotal, tax, total",
                TESTS,
            ),
        )
    ),
    Answer(tools=(bash(RUN, suite(0, 62), "Run the tests"),)),
    Answer("62 tests pass, the new one among them. Now the screenshot?"),
    Ask(
        "Here it is: the amounts don't line up, and the shop wants the articles sorted as in the "
        "catalogue.",
        SCREENSHOT,
    ),
    Answer(
        "The amounts are set flush left, so their decimal points don't meet.",
        (read("shop/templates/invoice.html", INVOICE), read("shop/catalog.py", catalog())),
        "The screenshot shows the amounts flush left. The template probably has text-align: left. "
        "For the order I need the position of each sku in CATALOG, which is a plain dict.",
    ),
    Answer(
        "I set amounts flush right with figures of equal width.",
        (
            edit(
                "shop/templates/invoice.html",
                "td.amount { text-align: left; white-space: nowrap; }",
                "td.amount { text-align: right; white-space: nowrap; "
                "font-variant-numeric: tabular-nums; }",
                INVOICE,
            ),
        ),
    ),
    Answer(
        "Now the order of the lines.",
        (
            grep(
                "lines=|sorted\\(",
                "shop/invoices.py:54:        lines=[_line(l) for l in order.lines],\n"
                "shop/totals.py:43:    for rate in sorted({CATALOG[line.sku].tax for line in "
                "order.lines}):\nshop/export.py:22:    for line in sorted(order.lines, "
                "key=lambda l: l.sku):",
            ),
        ),
    ),
    Answer(tools=(read("shop/totals.py", TOTALS_ONCE.replace(NET, NET_OFF)),)),
    Answer(
        "Sorting belongs in shop/invoices.py, not in the totals. The catalogue's order is that of "
        "its dict.",
        (
            edit(
                "shop/invoices.py",
                "lines=[_line(l) for l in order.lines],",
                "lines=[_line(l) for l in sorted(order.lines, key=lambda l: PLACES[l.sku])],",
                "        number=number,\n        lines=[_line(l) for l in order.lines],\n"
                "        tax=tax(order, rules_at(order.placed)),\n",
            ),
            bash(
                "sed -i 's/^from shop.totals import tax$/&\\n\\nPLACES = {sku: i for i, sku in "
                "enumerate(CATALOG)}/' shop/invoices.py && git diff --stat",
                " shop/invoices.py                |  5 ++++-\n shop/templates/invoice.html     |"
                "  2 +-\n shop/totals.py                  |  8 +++-----\n tests/test_totals.py   "
                "         |  8 +++++++-\n 4 files changed, 15 insertions(+), 8 deletions(-)",
                "Add the places and show what changed",
            ),
        ),
    ),
    Answer(tools=(bash(RUN, suite(0, 62), "Run the tests"),)),
    Answer(
        tools=(
            read("shop/catalog.py", catalog()),
            bash(
                "python -m shop.invoices --sample | head -n 12",
                "Invoice 2026-0117\nTEA-001  small green tea      4     9.20    36.80\n"
                "CUP-004  blue harbour cup     2     6.45    12.90\nPOT-002  large black pot      "
                "1    24.90    24.90\nDiscount                                 -5.60\nShipping    "
                "                              0.00\nTotal                                    "
                "69.00",
                "Print a sample invoice",
            ),
        ),
    ),
    Answer(
        "Done: amounts stand flush right with equal figures, lines come in the order of the "
        "catalogue, and all 62 tests pass. Nothing is committed yet; shall I commit the tax and "
        "the invoice separately?"
    ),
    Ask("Yes, two commits please, and mention the spring sale in the first."),
)
