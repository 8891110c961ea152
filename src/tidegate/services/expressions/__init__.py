"""The expression language of projections: `speed * 3.6`, `concat(cid, '-', vid)`, `coalesce(pos.x, 0)`.

    text ── parser ──▶ untyped tree ── type_checker, with a schema ──▶ Expression ──┬──▶ Spark SQL   sql
                                                                                    └──▶ a value     evaluate

`functions` has all operators and functions, `casts` all conversions between types; each entry has its Spark SQL and its
Python implementation. The Python one is slow and obvious, and tests compare Spark with it. No expression raises on a
value of its schema: a result that does not exist, or that its type can't hold, is null, also in Spark's ANSI mode.

    sum     = product { ("+" | "-") product } ;
    product = sign { ("*" | "/" | "%") sign } ;
    sign    = "-" sign | value ;
    value   = number | 'text' | "true" | "false" | "null" | call | path | "(" sum ")" ;
    call    = name "(" sum { "," sum } ")" ;
    path    = part { "." part } ;   part = ( name | '"' any text '"' ) { "[" index "]" } ;
"""

from tidegate.services.expressions.evaluate import evaluate
from tidegate.services.expressions.nodes import Expression
from tidegate.services.expressions.parser import names
from tidegate.services.expressions.sql import to_sql
from tidegate.services.expressions.type_checker import resolve

__all__ = ["Expression", "evaluate", "names", "resolve", "to_sql"]
